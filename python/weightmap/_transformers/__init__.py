"""Models of transformers whose experts are read when they are needed."""
