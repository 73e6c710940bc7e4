"""Names of files and directories that a shell, a specifier or an option reader takes for more."""

SHELL = [
    *("$(touch OWNED)", "`touch OWNED`", "x;touch OWNED", "x&touch OWNED", "x && touch OWNED", "'"),
]
WORK = [
    *("a b", "a  b", '"', "it's", 'a"b c', "it's a b", "a'b\"c", "<x", "x>OWNED", "(x", "x)"),
    *("{a", "*", "?x", "[a]", "~", "!x", "#x", "x#y", "%d", "a=b", "a:b", "x:1", "\\", "\\n"),
    *("$HOME", "$$", "ü", "語", "@", "^", "a--b", "{}", "%s"),
]
REFUSED = [
    *(" x", "a\nb", "a\tb", "\x7f", "a\rb", "-x", "--help", "|x", "x|", "x|y", "ark:x", "scp:x"),
    *("ark,t:x", "a,b", "\udcff"),
]
"""Names that a training refuses as directories."""
AWKWARD = [*SHELL, *WORK, *REFUSED]
