"""Objects that rest as bytes are the same objects."""

import random

from lictor.addons.apiserver.store import CompressedObjects, Compressor


def make_object(number):
    data = {f"key-{i}": "ä\u2028" * (number % 7) for i in range(number % 5)}
    return {"metadata": {"name": f"x-{number}"}, "data": data, "n": [None, True, 1.5, -number]}


def test_values_come_back():
    packer = Compressor()
    values = [make_object(n) for n in range(50)] + [None, [], {}, "", 0, "x" * 100_000]
    packed = [packer.pack(value) for value in values]
    assert [packer.unpack(each) for each in packed] == values


def test_like_objects_take_little_room():
    packer = Compressor()
    packer.pack(make_object(104))
    assert len(packer.pack(make_object(109))) < 40


def test_a_mapping_like_any_other():
    chance = random.Random(1)
    packed, plain = CompressedObjects(uncompressed=3), {}
    for _ in range(2000):
        key = chance.randrange(20)
        if chance.random() < 0.3 and key in plain:
            del packed[key], plain[key]
        else:
            packed[key] = plain[key] = make_object(chance.randrange(100))
        assert len(packed) == len(plain)
        assert packed.get(key) == plain.get(key)
    assert dict(packed) == plain
    assert list(packed) == list(plain)
    assert 99 not in packed
