"""C for CPUs: a core is an OpenMP thread, the lanes of a core are one vector."""
