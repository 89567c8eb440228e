"""The intermediate representation: a functional graph of operators, with its printer, parser and verifier."""
