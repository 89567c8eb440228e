"""What a user reads about a compilation, made from the event stream. Imports only events and errors."""
