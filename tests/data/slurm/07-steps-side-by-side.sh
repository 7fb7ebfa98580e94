#!/bin/bash
#SBATCH --ntasks=3
#SBATCH --nodes=1
#SBATCH --output=side.out

for part in a b c; do
  srun -N1 -n1 --exact bash -c "echo part $part" &
done
wait
echo "all parts"
