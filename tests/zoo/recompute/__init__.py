"""What reports say in numbers, recomputed from the tables of a trace as docs/ defines them."""
