"""Networks that choose the reply to a conversation, or write it."""
