"""Rule-based sentence splitting for any script: the characters around a place decide whether a sentence ends there.

    split_sentences("Dr. Lee paid $3.50. She left.")  -> ["Dr. Lee paid $3.50.", "She left."]
    split_sentences("“走吗？”他问。没有人回答。")        -> ["“走吗？”他问。", "没有人回答。"]

One regular expression finds the candidates. Clear ones (four lower-case letters or digits, a full stop, a space,
a capital) are accepted at once; for the others the script of the following text selects the rule. Every look around
a candidate is bounded, so the cost is linear in the length of the text. docs/sentences.md defines what a sentence is,
where that is a matter of taste, and lists known errors.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from litebert.errors import InputError, check_choice

# Full-width and similar terminators always end a sentence; . ! ? … depend on what follows.
STRONG = "。！？｡．؟۔।॥։።፧။។៕༎‼⁇⁈⁉"
_TERMINATORS = ".!?…‥⋯" + STRONG
_CLOSERS = "\"'”’»›)]}」』）】》〉〕］｝｣＂＇"

# Abbreviations. `never`: a sentence never ends here. `number`: the same if a number follows.
# `name`: it may end a sentence, but a following capital is more often a name ("the U.S. Army").
# A lower-case first letter matches both cases ("vol" and "Vol"), a capital only itself ("Sat" is not "sat").
_ABBREVIATIONS = {
    "en": {
        "never": """Mr Mrs Ms Mx Dr Prof Messrs Mme Mlle Mons Ste Gen Col Capt Cpt Cmdr Comdr Lt Lieut Maj Sgt Cpl Pvt
            Adm Brig Rev Hon Gov Sen Rep Pres Supt Insp Det Mt Ft Pt Fr Bp Abp Msgr e.g i.e eg ie viz vs v cf ca
            approx Rt Treas Amb Sec Gens Profs Drs Revs Sens Reps Govs""",
        "number": """no nos vol vols p pp fig figs eq eqs ch chap sec sect art para par pt op ex ver c r cc bk tab
            fol ff l ll pl pls b d est Nr ref refs n nn app cap al Apt Ste Rm Bldg ext thm lem prop def cor ft
            Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Mon Tue Tues Wed Thu Thur Thurs Fri""",
        "name": """Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Mon Tue Tues Wed Thu Thur Thurs Fri Inc Ltd Co
            Corp Bros Jr Sr etc al Ave Blvd Rd Hwy Pkwy Univ Dept dept Assn Assoc Intl Natl Mfg Esq est ed eds trans
            fl b d c Ph sp spp subsp var nov cf ibid esp incl excl deg
            Ala Ariz Ark Calif Colo Conn Fla Ga Ill Ind Kan Ky La Mass Md Mich Minn Mo Mont Neb Nev Okla Ore Pa Penn
            Tenn Tex Va Vt Wash Wis Wyo Ph.D M.Sc B.Sc Ph.Ds Ed.D Litt.D St""",
    },
    "de": {
        "never": """z.B d.h u.a bzw vgl Hr Hrn Frl Dipl Ing Mag Dr.-Ing sog geb gest evtl ggf inkl insb bes ehem
            einschl zzgl zw Hl hl""",
        "number": "Nr Bd Kap S Abs Abb Tab Str ca Jh Jhs Tel Jg Hrsg",
        "name": "usw etc n u.dgl o.ä Chr v.Chr n.Chr Mio Mrd Str Jh Jhs Abt",
    },
    "fr": {
        "never": "MM Mme Mmes Mlle Mlles Mgr Dr Pr p.ex c.-à-d env Ste cf",
        "number": "art chap fig vol t p pp n no",
        "name": "etc av apr J.-C boul",
    },
    "es": {
        "never": "Sra Srta Sres Dr Dra Dña Ud Uds Vd Vds Lic Ing Prof Profa Gral p.ej Sto Sta Fr cf",
        "number": "núm art cap vol pág págs fig tel",
        "name": "etc Sr a.C d.C EE.UU Cía Av Avda",
    },
    "ru": {
        "never": "т.е т.к им ул пр пл см ср гр тов акад проф св т.н напр",
        "number": "стр рис табл гл п с т ст кв д кн вып",
        "name": "г гг в вв др т.д т.п н.э руб тыс млн млрд коп км м кг см обл",
    },
}
_SHOUTED = "Yahoo Jeopardy"  # names that end in !

# Words that open a sentence far more often than they continue a name.
_STARTERS = {
    "en": """A About According Additionally After Afterwards Again All Along Also Although Among An And
        Another Any Are Around As At Because Before Being Besides Between Beyond Both But By Can Could Currently
        Despite Did Do Does Don't Don’t During Each Earlier Either Even Eventually Every Everyone Few Finally
        First Five Following For Formerly Four From Furthermore Had Has Have He He's He’s Hence Her Here His How
        However I I'd I’d I'll I’ll I'm I’m I've I’ve If In Indeed Initially Instead Is It It's It’s Its Just
        Last Later Let Like Likewise Many Maybe Meanwhile More Moreover Most Much My Near Neither Never
        Nevertheless No Nobody Nor Not Nothing Now Of Off Often On Once One Only Originally Other Others Our
        Over Perhaps Please Previously See Shall She She's She’s Should Similarly Since Six So Some Sometimes
        Soon Still Subsequently Such Than That That's That’s The Their Them Then There There's There’s
        Thereafter Therefore These They They're They’re This Those Though Three Through Throughout Thus To Today
        Together Too Two Under Unfortunately Unlike Until Up Upon Was We We're We’re Were What When Where
        Whether Which While Who Whose Why Will With Within Without Would Yes Yet You Your""",
    "de": """Der Die Das Ein Eine Er Sie Es Wir Ich Ihr In Im Am Auf Aus Bei Mit Nach Seit Von Vor Zu Zum Zur Und
        Aber Als Auch Da Dann Dort Hier Nun So Wenn Wer Wie Wo Was Warum Diese Dieser Dieses Für Nicht Jedoch""",
    "fr": """Le La Les Un Une Des Il Elle Ils Elles On Nous Vous Je Tu Ce Cette Ces C'est C’est En Dans Au Aux À Et
        Mais Ou Où Par Pour Sur Quand Qui Que Pourquoi Comment Son Sa Ses Leur Puis Après Avant Depuis""",
    "es": """El La Los Las Un Una Él Ella Ellos Ellas Yo Tú Nosotros Es En Por Para Con Sin Y Pero O Como Cuando
        Donde Este Esta Estos Estas Ese Esa Su Sus Se No Si Qué Quién Después Antes Desde Al Del""",
    "ru": """В Во На По Он Она Оно Они Мы Я Ты Вы Это Этот Эта Эти Тот Но И А С Со К Ко Из От До За Для При Когда
        Если Как Где Кто Что Почему После Его Её Их Не Однако Затем Там Тут Здесь Так Также Тогда Потом""",
}
# Nouns after a German ordinal of one or two digits: "am 3. Oktober".
_MONTHS = """Januar Jänner Februar März April Mai Juni Juli August September Oktober November Dezember
    Jahrhundert Jahrhunderts"""
_LANGUAGES = ("auto", "en", "ko", "zh", "ja", *(name for name in _ABBREVIATIONS if name != "en"))

CLEAR, PLAIN, RUN, GAP = 1, 2, 3, 4  # the groups of `candidate`


class Rules(NamedTuple):
    """The words of a language before and after a full stop."""

    candidate: re.Pattern[str]
    never_end: frozenset[str]
    before_number: frozenset[str]
    ask_next: frozenset[str]
    starters: frozenset[str]
    shouted: frozenset[str]
    months: frozenset[str]
    ordinals: bool


@lru_cache
def find_rules(language: str) -> Rules:
    """The rules of a language; "auto" combines the abbreviations of all."""
    check_choice("language", language, _LANGUAGES, InputError)
    # English abbreviations and sentence starters apply to every language: names and titles travel.
    names = list(_ABBREVIATIONS) if language == "auto" else ["en", *({language} & _ABBREVIATIONS.keys())]

    def words(kind: str) -> frozenset[str]:
        listed = {word for name in names for word in _ABBREVIATIONS[name][kind].split()}
        spelled = {word[0].upper() + word[1:] for word in listed if len(word) > 1}
        if kind == "never":  # "MRS. GREY"
            spelled |= {word.upper() for word in listed if word[0].isupper()}
        return frozenset(listed | spelled)

    never, number, name = words("never"), words("number"), words("name")
    # "La" and "Die" open sentences in their languages and continue names in others; Cyrillic words do not.
    openers = {"en", "ru"} | ({language} & _STARTERS.keys())
    starters = {word for name in openers for word in _STARTERS[name].split()}
    return Rules(
        make_candidates(never | number | name),
        never_end=never,
        before_number=number,
        ask_next=name,
        starters=frozenset(starters),
        shouted=frozenset(_SHOUTED.split()),
        months=frozenset(_MONTHS.split()),
        ordinals=language == "de",
    )


def make_candidates(abbreviations: frozenset[str], shortcuts: bool = True) -> re.Pattern[str]:
    """The pattern that finds where a sentence may end.

    Group CLEAR: it certainly does. PLAIN: it does unless it is inside an open quote. Both only save time.
    """
    # A word that ends like a long abbreviation or a Roman numeral is not clear. ("approx." -> "prox")
    tails = {word[-4:] for word in abbreviations if len(word) >= 4}
    unclear = "|".join(sorted(tail for tail in tails if tail.isascii() and tail.islower() and tail.isalpha()))
    clear = rf"(?:(?<=[a-z]{{4}}[.?])|(?<=\d{{4}}\.))(?<!(?:{unclear}|[ivx]{{4}})\.)( )(?=[A-Z])"
    ideograph = r"[\u3041-\u30ff\u3400-\u9fff]"
    plain = rf"((?<=[가-힣][다요]\.) (?=[가-힣0-9A-Za-z])|(?<={ideograph}[。！？])(?={ideograph}))"
    # A dot inside a number, a name or an address is not a full stop; footnote marks belong to the sentence.
    terminators, closers = re.escape(_TERMINATORS), re.escape(_CLOSERS)
    other = (
        rf"(?:(?<=[{STRONG}])|(?![a-z0-9,;:]))([{terminators}]*+)"
        rf"(?:[{closers}]|[“‘](?!\S)|[ \u00a0\u202f][»›]|\[\d{{1,3}}\])*+(\s*+)"
    )
    if not shortcuts:
        clear = plain = "((?!))"
    return re.compile(rf"[{terminators}](?:{clear}|{plain}|{other})")


# ---------------------------------------------------------------------------------------------------------------------
# Splitting


_OPENERS = "\"'“‘„‚«‹([{¿¡「『《〈【（〔［｛｢＂＇—–-―*•"
_BEFORE_LETTER = _OPENERS + " \u00a0"
_NO_START = ",;:)]}.!?…、，；：」』）】》〉〕”’»%~"  # no sentence begins with these
_DOTS = ".…‥⋯"
_WINDOW = 300  # how far to search back for an opening, and ahead for a closing quote or bracket


def split_sentences(text: str, language: str = "auto") -> list[str]:
    """Split a text into sentences, without the whitespace between them: "A b. C d." -> ["A b.", "C d."]."""
    return [text[begin:end] for begin, end in sentence_spans(text, language)]


def sentence_spans(text: str, language: str = "auto") -> list[tuple[int, int]]:
    """The start and end of each sentence, with only whitespace in between: "A b. C d." -> [(0, 4), (5, 9)].

    A blank line always ends a sentence, a single line break never does. `language` restricts abbreviations and
    ordinal numbers to one language; "auto" uses those of all.
    """
    rules = find_rules(language)
    spans: list[tuple[int, int]] = []
    end = len(text.rstrip())
    begin = len(text) - len(text.lstrip())
    if text.find("\n", begin, end) >= 0:
        for blank in _BLANK_LINE.finditer(text, begin, end):
            paragraph_end = begin + len(text[begin : blank.start()].rstrip())
            _split_paragraph(text, begin, paragraph_end, rules, spans)
            begin = blank.end()
    _split_paragraph(text, begin, end, rules, spans)
    return spans


def _split_paragraph(text: str, begin: int, end: int, rules: Rules, spans: list[tuple[int, int]]) -> None:
    """Append the spans of text[begin:end], which neither begins nor ends with whitespace."""
    for candidate in rules.candidate.finditer(text, begin, end):
        group = candidate.lastindex or 0
        cut, resume = candidate.span(group)  # the whitespace after the candidate
        if group != CLEAR:
            if group == PLAIN:
                if _is_held(text, begin, candidate):
                    continue
            elif resume >= end or not _ends_sentence(text, begin, end, candidate, rules):
                continue
        spans.append((begin, cut))
        begin = resume
    if begin < end:
        spans.append((begin, end))


def _ends_sentence(text: str, begin: int, end: int, candidate: re.Match[str], rules: Rules) -> bool:
    """Whether the sentence that begins at `begin` ends at a candidate: terminators, closing marks, whitespace."""
    dot = candidate.start()
    after_dots = candidate.end(RUN)
    cut, resume = candidate.span(GAP)
    # There must be something to end before the terminator, and something that can begin a sentence after it.
    if dot == begin or text[resume] in _NO_START or text[dot - 1] in "([（":
        return False
    letter = resume
    while letter < end and letter < resume + 4 and text[letter] in _BEFORE_LETTER:
        letter += 1
    if letter == end or text[after_dots:cut].strip("》〉") != text[after_dots:cut]:
        return False  # nothing but quotes is left, or the terminator belongs to a title: 《누구세요?》
    first, before = text[letter], text[dot - 1]
    strong = text[after_dots - 1] in STRONG
    if _is_hangul(first) and not strong:
        return _ends_before_hangul(text, begin, candidate, letter, rules)
    if strong or _is_ideograph(first):
        return _ends_before_ideograph(text, begin, candidate, letter, strong, rules)
    if _is_hangul(before) or _is_ideograph(before):  # 설정이 있다. timeout 값은 2로 한다.
        trails_off = _is_ellipsis(text, candidate) and not _ends_in_korean(text, begin, dot)
        return cut < resume and not trails_off and not _is_held(text, begin, candidate)
    if cut == resume:
        return first.isupper() and _is_glued(text, begin, candidate, letter, rules)
    if first.islower():  # "e.g. this"; but "iPhone" and "eBay" may begin a sentence
        return letter + 1 < end and text[letter + 1].isupper() and not _is_abbreviated(text, begin, dot, rules)
    if first.isupper():
        return _ends_before_capital(text, begin, candidate, letter, rules)
    if first.isdigit():
        return _ends_before_number(text, begin, candidate, letter, rules)
    if first in "=+<>×÷/^|&":  # n! = 6
        return False
    return text[dot] != "." or not _is_abbreviated(text, begin, dot, rules)


def _is_ellipsis(text: str, candidate: re.Match[str]) -> bool:
    dot = candidate.start()
    return text[dot] in "…‥⋯" or text.startswith("..", dot)


# --- Latin, Cyrillic, Greek: by capitals ---------------------------------------------------------------------------


def _ends_before_capital(text: str, begin: int, candidate: re.Match[str], letter: int, rules: Rules) -> bool:
    dot, after_dots, cut = candidate.start(), candidate.end(RUN), candidate.start(GAP)
    if after_dots > dot + 1 or text[dot] != ".":
        if after_dots < cut:  # "Where?" Anna asked. A quote and its speaker are one sentence.
            return _SAYS.match(text, letter, candidate.endpos) is None
        return text[dot] != "!" or _word_before(text, begin, dot) not in rules.shouted
    word = _word_before(text, begin, dot)
    if (after_dots == cut and _is_label(text, begin, dot)) or word in rules.never_end:
        return False
    if word in rules.ask_next or _is_initials(word):
        if word == "I" and _THEN_I.search(text, max(begin, dot - 12), dot):
            return True  # "than I. Peter ...", "World War I. Germany ..."; but "Edward I. Koch"
        return _begins_with_starter(text, letter, rules)
    if len(word) == 1 and text[letter + 1 : letter + 2] == ".":  # "z. B."
        return False
    if word in rules.before_number and word not in ("no", "No"):  # "Vol. IV"; but "No. I did not."
        return _NUMERAL.match(text, letter) is None
    if word.isdigit() and len(word) <= 2:  # "am 3. Oktober"
        return not rules.ordinals and _next_word(text, letter) not in rules.months
    return True


def _ends_before_number(text: str, begin: int, candidate: re.Match[str], letter: int, rules: Rules) -> bool:
    dot = candidate.start()
    if text[dot] != "." or candidate.start(GAP) > dot + 1:
        return text[letter - 1] not in "(["  # "Oklahoma!" (1943)
    word = _word_before(text, begin, dot)
    if word in rules.before_number or word in rules.never_end or _is_initials(word):
        return False
    if word in rules.ask_next and text[letter - 1] in "([":  # "Logan, Jr. (1927) is"
        return False
    if word.isdigit() and _DAY_OR_MONTH.match(text, letter):  # 2023. 5. 12.
        return False
    return not _is_label(text, begin, dot)


def _is_glued(text: str, begin: int, candidate: re.Match[str], letter: int, rules: Rules) -> bool:
    """Whether a sentence begins with no space before it: "in 1990.The town", "so.--Mr. Lee"; not "U.S", "Node.JS"."""
    dot, resume = candidate.start(), candidate.end()
    if text[resume] in "-—":
        return text[dot - 1].islower() and not _is_abbreviated(text, begin, dot, rules)
    before = text[max(begin, dot - 2) : dot]
    word_before = before[-1] == ")" or before.isdigit() or (before.isalpha() and before.islower())
    if resume > dot + 1 or letter > resume or not word_before:
        return False
    word = _next_word(text, letter)
    return word in rules.starters and text[letter + len(word) : letter + len(word) + 1] in (" ", ",")


def _begins_with_starter(text: str, letter: int, rules: Rules) -> bool:
    """Whether a word there rarely continues a name: "He" -> True, "Army" -> False, "A. Smith" -> False."""
    word = _next_word(text, letter)
    return word in rules.starters and text[letter + len(word) : letter + len(word) + 1] != "."


def _is_abbreviated(text: str, begin: int, dot: int, rules: Rules) -> bool:
    word = _word_before(text, begin, dot)
    known = word in rules.never_end or word in rules.ask_next or word in rules.before_number
    return known or _is_initials(word) or _is_label(text, begin, dot)


def _is_initials(word: str) -> bool:
    """Whether a word is an initial or several: "J" -> True, "U.S" -> True, "a" -> False."""
    return word.isupper() if len(word) == 1 else _INITIALS.fullmatch(word) is not None


def _is_label(text: str, begin: int, dot: int) -> bool:
    """Whether the sentence so far is only the number of a list item or heading: "1", "2.3", "(a", "IV", "가"."""
    return dot - begin <= 8 and _LABEL.fullmatch(text, begin, dot) is not None


def _word_before(text: str, begin: int, dot: int) -> str:
    """The word that ends at `dot`: "(Dr" -> "Dr", "the U.S" -> "U.S"; only the tail of a long word."""
    if text[dot - 1].isspace():
        return ""
    word = text[max(begin, dot - 16) : dot].split()[-1]
    if word.isalpha() and word.isascii():
        return word
    tail = _LAST_WORD.search(word)
    return tail[0] if tail else ""


def _next_word(text: str, letter: int) -> str:
    found = _WORD.match(text, letter)
    return found[0] if found else ""


# --- Korean: by endings and particles ------------------------------------------------------------------------------


def _ends_before_hangul(text: str, begin: int, candidate: re.Match[str], letter: int, rules: Rules) -> bool:
    dot, after_dots = candidate.start(), candidate.end(RUN)
    cut, resume = candidate.span(GAP)
    before = text[dot - 1]
    dots = text[dot] in _DOTS
    if after_dots < cut:  # a quote or bracket closes here: "간다."라고 말했다, "왜?" 하고 물었다
        quoted = text[cut - 1] not in ")]}）］｝〕"
        says = quoted and _KO_SAYS.match(text, letter, candidate.endpos)
        if cut == resume or says or _KO_QUOTES.match(text, letter):
            return False
    elif cut == resume:  # no space: "먹었다.그리고", "야후!는", "초.중.고"
        if not _is_hangul(before) or _KO_PARTICLE.match(text, letter):
            return False
        if dots and not (after_dots == dot + 1 and before in "다요죠까" and _is_hangul(text[dot - 2 : dot - 1])):
            return False
    elif not dots and _KO_QUOTES.match(text, letter):
        return False
    elif _is_ellipsis(text, candidate):  # 저는… 그러니까…
        if not _ends_in_korean(text, begin, dot):
            return False
    elif text[dot] == ".":
        if before.isascii():
            word = _word_before(text, begin, dot)
            date = word.isdigit() and (len(word) <= 2 or len(word) == 4)  # 2023. 5. 12. 서울에서
            if date or _is_abbreviated(text, begin, dot, rules):
                return False
        elif _is_label(text, begin, dot):
            return False
    return not _is_held(text, begin, candidate)


def _ends_in_korean(text: str, begin: int, dot: int) -> bool:
    """Whether two words or more with a final ending precede an ellipsis: 몰라 몰라요… -> True."""
    near = max(begin, dot - _WINDOW)
    return text[dot - 1] in "다죠요네지" and _WHITE_SPACE.search(text, near, dot) is not None


# --- Chinese and Japanese: by quotes and particles -----------------------------------------------------------------


def _ends_before_ideograph(
    text: str, begin: int, candidate: re.Match[str], letter: int, strong: bool, rules: Rules
) -> bool:
    dot, after_dots = candidate.start(), candidate.end(RUN)
    cut, resume = candidate.span(GAP)
    if after_dots < cut:  # a quote or bracket closes here
        if letter > resume:  # and another opens: 「元気？」「うん。」
            return True
        return not _quote_goes_on(text, begin, candidate, letter)
    if text[dot] == "．" and text[dot - 1].isdigit():  # ３．１４
        return False
    if not strong:
        latin = text[dot - 1].isascii()
        if _is_ellipsis(text, candidate):  # 我……我不知道
            return False
        if cut == resume and "\u30a0" <= text[dot - 1] <= "\u30ff" and _JA_PARTICLE.match(text, letter):
            return False  # ワム!を聴く
        if latin and (cut == resume or (text[dot] == "." and _is_abbreviated(text, begin, dot, rules))):
            return False  # Yahoo!ニュース, W. 洛克, 1. 打开
        if latin and text[dot] == "!" and _word_before(text, begin, dot) in rules.shouted:
            return False
    return not _is_held(text, begin, candidate)


def _quote_goes_on(text: str, begin: int, candidate: re.Match[str], letter: int) -> bool:
    """Whether the sentence continues after a closed quote: 「行くよ。」と言った, “走吗？”他问, 写下“加油！”两个字."""
    dot, cut, end = candidate.start(), candidate.start(GAP), candidate.endpos
    if _JA_PARTICLE.match(text, letter) or _is_hangul(text[cut]):
        return True
    closer = text[cut - 1]
    bracket = closer in ")]}）］｝〕】"
    opener = text.rfind(_OPENER_OF.get(closer, closer), max(begin, dot - _WINDOW), dot)
    lead = text[max(begin, opener - 2) : opener] if opener > begin else ""
    if lead.endswith(("：", ":", "，", ",")):  # 他问：“你是谁？” already names the speaker
        return False
    if _ZH_NOUN.match(text, letter):
        return True
    if not bracket and (_ZH_SAYS.match(text, letter, end) or _JA_SAYS.match(text, letter, end)):
        return True
    # A quote that opens in the middle of a phrase is part of it, unless it is direct speech.
    return lead[-1:].isalnum() and (bracket or _ZH_LEADS_TO_SPEECH.search(lead) is None)


def _is_held(text: str, begin: int, candidate: re.Match[str]) -> bool:
    """Whether an open quote or bracket holds the sentence together: 彼は「疲れた。もう帰る。」と言った。"""
    dot, cut = candidate.start(), candidate.start(candidate.lastindex or 0)
    near = max(begin, dot - _WINDOW)
    if _OPENING.search(text, near, dot) is None:
        return False
    for opener, closer in _PAIRS:
        opened = text.rfind(opener, near, dot)
        if opened < 0 or text.find(closer, dot, cut) >= 0:
            continue
        closed = text.find(closer, cut, min(cut + _WINDOW, candidate.endpos - 1))
        if closed < 0:
            continue
        if opener == closer:  # " and ' open after whitespace and close before it
            if (opened > begin and text[opened - 1] not in " (") or text[closed - 1].isspace():
                continue
        elif text.rfind(closer, opened, dot) >= 0:
            continue
        after = closed + 1
        if opener in "《〈":
            return True
        if opener in "（(":
            return opened > begin and text[opened - 1] not in STRONG
        if _is_hangul(text[after]) or (text[after] == " " and _KO_QUOTES.match(text, after + 1)):
            return True
        if _is_ideograph(text[after]) and _JA_PARTICLE.match(text, after):
            return True
        if _is_ideograph(text[after]) and opened > begin and text[opened - 1].isalnum():
            return True
    return False


def _is_hangul(character: str) -> bool:
    return "가" <= character <= "힣" or "ㄱ" <= character <= "ㆎ"


def _is_ideograph(character: str) -> bool:
    """Whether a character is Han or kana, or a sign used in place of one."""
    return (
        "\u3005" <= character <= "\u3007"
        or "\u3041" <= character <= "\u30ff"
        or "\u3400" <= character <= "\u9fff"
        or "\uf900" <= character <= "\ufaff"
        or "\uff66" <= character <= "\uff9f"
        or "\U00020000" <= character <= "\U0003ffff"
    )


# --- The patterns ------------------------------------------------------------------------------------------------

_BLANK_LINE = re.compile(r"\n\s*\n\s*")
_WHITE_SPACE = re.compile(r"\s")
_WORD = re.compile(r"[^\W\d_]{1,16}+(?:['’][a-z]{1,2})?+")
_INITIALS = re.compile(r"(?:[^\W\d_]\.-?)+[^\W\d_]")
_THEN_I = re.compile(r"(?:\b[a-z]+|\bWar) I$")
_LABEL = re.compile(r"[(\[]?(?:\d{1,3}(?:\.\d{1,3})*|[A-Za-z]|[ivxIVX]{1,5}|[가나다라마바사차카타파하])[)\]]?")
_LAST_WORD = re.compile(r"(?:[^\W_\u3000-\u9fff가-힣]+(?:\.-?|['’]))*[^\W_\u3000-\u9fff가-힣]+$")
_NUMERAL = re.compile(r"(?:[IVXLC]+|[A-Z])\b")
_DAY_OR_MONTH = re.compile(r"\d{1,2}\.")
_SAYS = re.compile(
    r"(?:[A-Z][\w'’-]{0,20}\.? ){1,3}(?:[a-z]{2,12}ly )?"
    r"(?:said|says|asked|asks|cried|cries|called|shouted|replied|answered|exclaimed|whispered|yelled|murmured"
    r"|muttered|inquired|enquired|demanded|repeated|thought|wondered|began|screamed|added|continued|interrupted"
    r"|gasped|sobbed|roared|sighed|remarked|responded|protested|insisted|ordered|snapped|growled|wanted to know)\b"
)

_KO_QUOTES = re.compile(
    r"(?:이?(?:라고|라며|라면서|라는|란)|하고|하며|하면서|하는|고|며|라|등[을의이도]?)(?![가-힣])|하[자더]"
)
_KO_PARTICLE = re.compile(
    r"(?:은|는|이|가|을|를|의|에|에서|에게|에도|와|과|도|로|으로|만|까지|부터|처럼|보다|이?나|이?란|이?라|이?라고"
    r"|이?라는|이?라며|고|며|인|이다|입니다|하고|하는)(?![가-힣])"
)
_KO_SAYS = re.compile(
    r"(?:[^\s.!?…。\"”’]{1,12}\s){0,4}[^\s.!?…。\"”’]{0,6}"
    r"(?:말했|말하|말씀하|물었|물으|묻|대답했|답했|외쳤|소리쳤|소리를 질렀|중얼거렸|속삭였|(?<!노래를 )불렀|되물|덧붙였"
    r"|투덜거렸|내뱉었|쏘아붙였)"
)

_JA_PARTICLE = re.compile(
    # Words that begin like a particle but open a sentence.
    r"(?!でも|では|でき|です[がから]|だが|だから|だけど|だって|だれ|だん|だめ|ところ|とにかく|ともかく|とたん|とうとう|とても|とりあえず|とき"
    r"|とっ|もう|もし|もちろん|もっと|もはや|もともと|にこ|にっこり|にやり|はい|はじめ|はるか|はっ|はたして|はは|がっ|のち|のんびり"
    r"|やっ|やが|やはり|やさ|へえ|かれ|かつて|かす|かな|かわ|からりと|なるほど)"
    r"(?:と|って|の|は|が|を|に|で|も|や|へ|か|から|まで|など|なんて|だ|じゃ|なら|なる|とか|さえ|しか)"
)
_JA_SAYS = re.compile(
    r"[^。！？!?「」『』（）\s]{0,20}?"
    r"(?:言った|言う|言い|叫んだ|聞いた|訊いた|尋ねた|答えた|つぶやいた|呟いた|ささやいた|囁いた|どなった|怒鳴った|呼んだ|問うた|問いかけた"
    r"|言い返した|笑って言った|話した|続けた)(?=[。、！？])"
)
_ZH_NOUN = re.compile(r"[的之]|[这那][个句话一种]|[一二两三四五六七八九十几]+个?[字词声句]|等|，")
_ZH_VERB = (
    r"(?<![没有不])(?:(?<![听小传据学胡虽])说|(?:说|问|喊|叫|答|笑|骂|吼|叹|劝|嚷|哭|喝|赞|怒|催|补充|解释|回答|反问|追问|写|念|应|接)道|问|喊|大叫|喊叫|尖叫"
    r"|回答|反问|追问|大喊|大声喊|嚷|吼|嘟囔|嘀咕|表示|补充|解释|低语|自语|叹息|开口)(?:着|了(?:一[句声]|几句)?)?"
)
_ZH_SAYS = re.compile(
    rf"[^，。！？；：、“”‘’「」『』（）\s]{{0,20}}?{_ZH_VERB}(?:[^，。！？；：“”]{{0,3}}(?<=老师|他们|大家|自己))?(?=[。！？；，])"
    r"|[^。！？；：“”「」]{0,30}?，[“「]"  # the speech continues after a comma: “走吗？”他回过头，“天黑了。”
)
_ZH_LEADS_TO_SPEECH = re.compile(r"(?:说|道|问|喊|叫|答|一声|一句)$")
_PAIRS = tuple(zip("「『“‘《〈（(\"'", "」』”’》〉）)\"'", strict=True))  # they may keep a sentence together
_OPENER_OF = dict(zip("」』”’》〉）)】］]｝}〕»", "「『“‘《〈（(【［[｛{〔«", strict=True))
_OPENING = re.compile("[" + re.escape("".join(opener for opener, _ in _PAIRS)) + "]")
