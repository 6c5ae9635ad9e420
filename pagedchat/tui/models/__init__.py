"""Choosing another model while the chats stay."""
