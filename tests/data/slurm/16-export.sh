#!/bin/bash
#SBATCH --export=SITE_DATA,EPOCHS=3
#SBATCH --output=export.out

echo "$SITE_DATA for $EPOCHS epochs"
