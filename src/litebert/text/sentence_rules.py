"""Language data for sentence splitting: abbreviations, words that begin sentences, and where a sentence may end."""

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
