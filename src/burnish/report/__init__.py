"""Reports on compilation for the user, made from the event stream. Imports only events and errors."""
