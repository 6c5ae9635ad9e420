"""A chat whose turns are really in the scripted engine's blocks: one token a character, the plain transcript."""

from pagedchat.chat.session import ChatSession
from pagedchat.chat.template import ChatTemplate
from pagedchat.view.engine_view import EngineView
from tests.scripted_reports import ScriptedEngine

SAMPLED = 7
"""What the scripted runner samples, always."""
REPLY = "!"


def told_engine(block_size: int = 8, num_blocks: int = 64, **limits: object) -> ScriptedEngine:
    """An engine whose view knows what every token stands for."""
    engine = ScriptedEngine(block_size=block_size, num_blocks=num_blocks, max_num_batched_tokens=256, **limits)
    engine.view.token_texts = {ord(char): char.encode() for char in map(chr, range(32, 0x2FF))}
    engine.view.token_texts |= {10: b"\n", 27: b"\x1b", 9: b"\t", SAMPLED: REPLY.encode(), 0x26F5: "⛵".encode()}
    return engine


def ask(engine: ScriptedEngine, chat: ChatSession, prompt: str, reply_length: int) -> None:
    """A prompt and its whole reply, in the session and in the engine."""
    chat.ask(prompt, 1)
    text = ChatTemplate().render(chat.turns)
    held = engine.core.sequences.get(chat.session_id)
    known = len(held.token_ids) if held else 0
    tokens = [ord(char) for char in text[known:]]
    engine.ask(chat.session_id, tokens, max_tokens=reply_length)
    engine.run(reply_length + 1)
    chat.start()
    chat.append(REPLY * reply_length, reply_length)
    chat.finish("stop")


def asked(prompt: str = "Tell me of a boat", reply_length: int = 20) -> tuple[ScriptedEngine, ChatSession]:
    """An engine and chat 1 after one prompt."""
    engine, chat = told_engine(), ChatSession(1, name="tale")
    engine.view.labels = {1: chat.label}
    ask(engine, chat, prompt, reply_length)
    return engine, chat


def text_in(view: EngineView, seq_id: int, block_id: int) -> str:
    """What a block of the sequence says, read off the mirror."""
    assert view.mirror is not None
    sequence, size = view.mirror.sequences[seq_id], view.mirror.block_size
    start = sequence.block_table.index(block_id) * size
    tokens = sequence.token_ids[start : min(start + size, sequence.num_computed)]
    return b"".join(view.token_texts[token] for token in tokens).decode()
