"""From an author's file to the IR: declarations, parsing, loading, printing."""
