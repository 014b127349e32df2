//! Bounds on the text of canonical objects: what an identifier, a name or a key may hold.
