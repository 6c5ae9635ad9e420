"""The tree of branches beside the chats."""
