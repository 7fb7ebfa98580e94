/* An all-reduce over every rank; in the first attempt it then works on until one of its ranks is killed. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
  int rank, size, sum = 0;
  const char *attempt = getenv("FAIRLEAD_ATTEMPT"), *node = getenv("FAIRLEAD_NODE");
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  printf("rank %d of %d on %s: sum %d, pid %d\n", rank, size, node ? node : "?", sum, (int)getpid());
  fflush(stdout);
  while (argc > 1 && attempt && strcmp(attempt, "1") == 0) sleep(1);
  MPI_Finalize();
  return 0;
}
