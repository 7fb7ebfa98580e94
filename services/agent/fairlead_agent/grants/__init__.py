"""What jobs may have of a node besides its devices: directories and secrets, as its admin says."""
