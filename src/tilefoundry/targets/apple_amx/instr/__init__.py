"""Apple's matrix coprocessor: contracts, encodings, register rows."""
