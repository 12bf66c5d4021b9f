"""C for Apple silicon: as for other CPUs, and the words of its matrix coprocessor."""
