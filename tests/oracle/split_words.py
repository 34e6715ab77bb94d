"""The Split patterns of DeepSeek's tokenizers, for the tokenizers' oracle test, and texts that try their edges."""
CASED = (
    "A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293"
    "\u0295-\u02AF\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C"
    "\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5"
    "\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77"
    "\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59"
    "\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC"
    "\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107"
    "\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139"
    "\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE"
    "\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E"
    "\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F"
    "\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2"
    "\U000118A0-\U000118DF\U0001E900-\U0001E943")
V3 = [r"\p{N}{1,3}", "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
      " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
LETTERS = r"\s?[" + CASED + "]+"
END = r"\s+$"
CJK = "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+"
LLM = ["[\r\n]", LETTERS, "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+", END, CJK, True]
CODER = ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, True]
# True and False are Digits, each by itself or not; an order that nobody ships, in which lines end inside of pieces.
MIXED = [END, LETTERS, False, r"\s?\p{P}+", None]
KINDS = {"deepseek v3": V3, "deepseek llm": LLM, "deepseek coder": CODER, "stages": MIXED}
EDGES = [
    "a  \n1", "a  \n b \n\n c  ", " \n \r\n \n", "x \n\ny \n", "  \u4e2d  ", " \u4e2d\u6587 abc12345 \u3042\u30a2\u30fc.", "\u3000\u3001\u3002a",
    "\x00\n\x00a\x00", "\u200b\u200b1", "#include <a.h>", ".NET !a [b] \\c ]d ^e -f _g", "a\u0301\u4e00\u0800\ud7ff\uac00", "!!\r\n\r\nA",
    "\u1f7d\u1fd3\u1fdb\u1fbe\u2126\u212a \u00aa\u01bb\u0294", "\u0661\u0662\u0663\u0664 \u00bd\u2167\u2460", "  !  ?", "\t(\t\u201c\u2026", " " * 300 + "\u4e2d",
    "\U00010400\U0001e943\U000118a0", "\u2028\u2029 \u0085\n", "\u180e a", "1" * 70 + "\n" + "2" * 7,
]
