from pagedchat.engine.prefix_cache import ROOT, PrefixCache, hash_block


def test_a_hash_names_the_tokens_and_all_tokens_before():
    first = hash_block(ROOT, [1, 2])
    assert hash_block(ROOT, [1, 2]) == first
    assert len({first, hash_block(ROOT, [1, 3]), hash_block(first, [1, 2]), hash_block(first, [1, 3])}) == 4


def test_the_first_block_with_a_hash_stays_the_one_to_be_found():
    cache = PrefixCache()
    name = hash_block(ROOT, [1, 2])
    assert cache.add(5, name, ROOT, [1, 2])
    assert not cache.add(6, name, ROOT, [1, 2])
    assert cache.find(name) == 5
    assert 6 not in cache


def test_a_head_match_takes_the_longest_agreement_under_the_same_parent():
    cache = PrefixCache()
    parent = hash_block(ROOT, [0, 0, 0, 0])
    for block, tokens in enumerate([[1, 2, 3, 4], [1, 2, 9, 9], [1, 2, 3, 9]]):
        cache.add(block, hash_block(parent, tokens), parent, tokens)
    assert cache.find_head(parent, [1, 2, 9]) == (1, 3)
    assert cache.find_head(parent, [1, 2, 3, 4]) == (0, 4)
    assert cache.find_head(parent, [7]) is None
    assert cache.find_head(ROOT, [1, 2]) is None
    assert cache.find_head(parent, []) is None


def test_a_removed_block_is_found_no_more_in_any_way():
    cache = PrefixCache()
    name = hash_block(ROOT, [1, 2])
    cache.add(5, name, ROOT, [1, 2])
    cache.remove(5)
    assert cache.find(name) is None
    assert cache.find_head(ROOT, [1]) is None
    assert len(cache) == 0


def test_the_newest_block_after_a_parent_is_known_until_it_is_removed():
    cache = PrefixCache()
    for block, tokens in enumerate([[1, 2], [3, 4]]):
        cache.add(block, hash_block(ROOT, tokens), ROOT, tokens)
    newest = cache.newest_after(ROOT)
    assert newest is not None
    assert newest == cache.entry(1)
    cache.remove(1)
    assert cache.newest_after(ROOT) == cache.entry(0)
    cache.remove(0)
    assert cache.newest_after(ROOT) is None
    assert cache.entry(0) is None
