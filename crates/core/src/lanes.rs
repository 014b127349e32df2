//! Lane arithmetic: who should hold how many.
