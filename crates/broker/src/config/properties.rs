//! `.properties` files by Java's rules.
