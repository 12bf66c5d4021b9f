"""TIR: buffers, participants, instructions and derived synchronisation."""
