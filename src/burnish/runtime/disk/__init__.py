"""What is kept on disk between processes, and whose files are trusted."""
