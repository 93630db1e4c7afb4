"""The beginnings of stories that texts are measured on."""

PROMPTS = (
    "Once upon a time there was a little girl who",
    "One day, a boy and his dog went to the park.",
    "Long ago, in a small house by the forest, lived an old woman.",
    "The king had three sons, and the youngest",
    "Tom was sad because he could not find his",
    "A bird sat in the tall tree and looked down at the garden.",
    "Mother said to the children,",
    "It was a cold winter night when the fox",
)
