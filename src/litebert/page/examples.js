// The texts that the forms start with, by the model's language: for each ability one or more examples. The first is
// shown; if there are several, all are offered. [MASK] is one piece of a vocabulary, so in Korean it is a noun before
// its particle, and in Chinese and Japanese a word of one character. Plain JSON behind the "=": the
// first English examples are chosen by tools/page_examples.py, which measures them with the default model.
export const EXAMPLES = {
  "en": {
    "fill_mask": [
      {
        "text": "the band released their first [MASK] in 1994 and went on a [MASK] of europe."
      },
      {
        "text": "new york is the largest [MASK] in the united [MASK]."
      },
      {
        "text": "the second world [MASK] ended in 1945."
      }
    ],
    "sentence_order": [
      {
        "a": "Anna studied medicine in Vienna.",
        "b": "After her studies she worked as a doctor in Prague."
      }
    ],
    "coherence": [
      {
        "text": "Clara Holm was born in Bergen in 1871. She studied mathematics in Berlin and wrote her thesis in 1896. In 1902 she became the first woman to teach at the university. She retired in 1936 and moved to the coast. She died there in 1949."
      }
    ],
    "embed": [
      {
        "query": "animals at home",
        "text": "the cat sleeps on the warm stove.\na kitten is lying by the fire.\nHe scored two goals in the final.\nThe team won the match and the cup.\nI love you, and I will never leave you.\nYou are the best friend that I have."
      },
      {
        "query": "football",
        "text": "the cat sleeps on the warm stove.\na kitten is lying by the fire.\nHe scored two goals in the final.\nThe team won the match and the cup.\nI love you, and I will never leave you.\nYou are the best friend that I have."
      },
      {
        "query": "friendship",
        "text": "the cat sleeps on the warm stove.\na kitten is lying by the fire.\nHe scored two goals in the final.\nThe team won the match and the cup.\nI love you, and I will never leave you.\nYou are the best friend that I have."
      }
    ],
    "attention": [
      {
        "text": "the dog chased the cat because it was hungry."
      }
    ],
    "classify": [
      {
        "text": "a warm, funny and quietly moving film."
      }
    ],
    "pair": [
      {
        "text": "A man is playing the guitar on stage.",
        "pair": "A man is playing music."
      }
    ],
    "sentiment": [
      {
        "text": "a warm, funny and quietly moving film."
      },
      {
        "text": "the food was cold and the waiter was rude."
      },
      {
        "text": "i would gladly see it again."
      }
    ],
    "entailment": [
      {
        "text": "A man is playing the guitar on stage.",
        "pair": "A man is playing music."
      },
      {
        "text": "A man is playing the guitar on stage.",
        "pair": "The man is asleep."
      },
      {
        "text": "A man is playing the guitar on stage.",
        "pair": "The man is famous."
      }
    ],
    "tag": [
      {
        "text": "Anna Berg moved from Oslo to Rome to work for the Red Cross."
      }
    ],
    "answer": [
      {
        "question": "Who designed the bridge?",
        "context": "The old bridge over the river was designed by Clara Holm in 1902. It was the first in the valley made of steel. A flood destroyed two of its arches in 1938, and it took the town nine years to build them again."
      },
      {
        "question": "What is the bridge made of?",
        "context": "The old bridge over the river was designed by Clara Holm in 1902. It was the first in the valley made of steel. A flood destroyed two of its arches in 1938, and it took the town nine years to build them again."
      },
      {
        "question": "What destroyed the arches?",
        "context": "The old bridge over the river was designed by Clara Holm in 1902. It was the first in the valley made of steel. A flood destroyed two of its arches in 1938, and it took the town nine years to build them again."
      }
    ],
    "choose": [
      {
        "passage": "Tom wanted to go swimming, but the sky was dark and the wind was strong. He put his towel back into the drawer and took a book instead.",
        "question": "Why did Tom stay at home?",
        "options": [
          "The weather was bad.",
          "He had lost his towel.",
          "He cannot swim.",
          "He had read the book."
        ]
      }
    ]
  },
  "ko": {
    "fill_mask": [
      {
        "text": "겨울에는 [MASK]이 많이 내려서 두꺼운 [MASK]을 입는다."
      },
      {
        "text": "그녀는 [MASK]을 열고 방으로 들어갔다."
      },
      {
        "text": "목이 말라서 시원한 [MASK]을 한 잔 마셨다."
      }
    ],
    "sentence_order": [
      {
        "a": "그녀는 외투를 입고 열쇠를 찾았다.",
        "b": "그러고 나서 문을 잠그고 집을 나섰다."
      }
    ],
    "coherence": [
      {
        "text": "이 마을은 1905년에 기차역이 생기면서 시작되었다. 1920년대에는 시장이 들어서고 학교도 문을 열었다. 전쟁이 끝난 뒤에는 많은 사람이 이곳으로 옮겨 왔다. 1974년에는 강 위에 새 다리가 놓였다. 오늘날 이 마을에는 약 2천 명이 살고 있다."
      }
    ],
    "embed": [
      {
        "query": "집에서 기르는 동물",
        "text": "고양이가 따뜻한 난로 옆에서 잔다.\n새끼 고양이가 불 앞에 누워 있다.\n북쪽으로 가는 기차는 정오에 떠난다.\n오늘은 버스가 한 시간이나 늦었다.\n달걀 두 개와 설탕 한 숟가락을 넣는다.\n우유에 밀가루를 넣고 잘 젓는다."
      },
      {
        "query": "대중교통",
        "text": "고양이가 따뜻한 난로 옆에서 잔다.\n새끼 고양이가 불 앞에 누워 있다.\n북쪽으로 가는 기차는 정오에 떠난다.\n오늘은 버스가 한 시간이나 늦었다.\n달걀 두 개와 설탕 한 숟가락을 넣는다.\n우유에 밀가루를 넣고 잘 젓는다."
      },
      {
        "query": "케이크 만드는 법",
        "text": "고양이가 따뜻한 난로 옆에서 잔다.\n새끼 고양이가 불 앞에 누워 있다.\n북쪽으로 가는 기차는 정오에 떠난다.\n오늘은 버스가 한 시간이나 늦었다.\n달걀 두 개와 설탕 한 숟가락을 넣는다.\n우유에 밀가루를 넣고 잘 젓는다."
      }
    ],
    "attention": [
      {
        "text": "민수는 지영이에게 책을 빌려주었지만 그녀는 읽지 않았다."
      }
    ],
    "classify": [
      {
        "text": "따뜻하고 유쾌하면서도 잔잔한 감동을 주는 영화이다."
      }
    ],
    "pair": [
      {
        "text": "한 남자가 무대에서 기타를 치고 있다.",
        "pair": "누군가가 관객 앞에서 음악을 연주한다."
      }
    ],
    "sentiment": [
      {
        "text": "따뜻하고 유쾌하면서도 잔잔한 감동을 주는 영화이다."
      },
      {
        "text": "음식은 식었고 종업원은 불친절했다."
      },
      {
        "text": "생각보다 괜찮아서 또 보고 싶다."
      }
    ],
    "entailment": [
      {
        "text": "한 남자가 무대에서 기타를 치고 있다.",
        "pair": "누군가가 관객 앞에서 음악을 연주한다."
      },
      {
        "text": "한 남자가 무대에서 기타를 치고 있다.",
        "pair": "그 남자는 자고 있다."
      },
      {
        "text": "한 남자가 무대에서 기타를 치고 있다.",
        "pair": "그 남자는 유명하다."
      }
    ],
    "tag": [
      {
        "text": "김민수는 서울에서 부산으로 이사해 대한적십자사에서 일하고 있다."
      }
    ],
    "answer": [
      {
        "question": "이 다리는 누가 설계했는가?",
        "context": "강을 가로지르는 이 오래된 다리는 1932년에 박정호가 설계했다. 이 지역에서 처음으로 강철로 만든 다리였다. 1958년 홍수로 아치 두 개가 무너졌고, 이를 다시 세우는 데 9년이 걸렸다."
      },
      {
        "question": "다리는 무엇으로 만들어졌는가?",
        "context": "강을 가로지르는 이 오래된 다리는 1932년에 박정호가 설계했다. 이 지역에서 처음으로 강철로 만든 다리였다. 1958년 홍수로 아치 두 개가 무너졌고, 이를 다시 세우는 데 9년이 걸렸다."
      },
      {
        "question": "아치를 무너뜨린 것은 무엇인가?",
        "context": "강을 가로지르는 이 오래된 다리는 1932년에 박정호가 설계했다. 이 지역에서 처음으로 강철로 만든 다리였다. 1958년 홍수로 아치 두 개가 무너졌고, 이를 다시 세우는 데 9년이 걸렸다."
      }
    ],
    "choose": [
      {
        "passage": "민수는 수영하러 가고 싶었지만 하늘이 어둡고 바람이 세게 불었다. 그는 수건을 다시 서랍에 넣고 대신 책을 꺼냈다.",
        "question": "민수는 왜 집에 남았는가?",
        "options": [
          "날씨가 나빠서",
          "수건을 잃어버려서",
          "수영을 할 줄 몰라서",
          "책을 이미 다 읽어서"
        ]
      }
    ]
  },
  "zh": {
    "fill_mask": [
      {
        "text": "冬天很[MASK]，出门要多[MASK]一件衣服。"
      },
      {
        "text": "她打开[MASK]，走进了房间。"
      },
      {
        "text": "医生让他多[MASK]水，好好休息。"
      }
    ],
    "sentence_order": [
      {
        "a": "她穿上外套，找到了钥匙。",
        "b": "然后她锁好门，离开了家。"
      }
    ],
    "coherence": [
      {
        "text": "这个村子建于清朝末年，最初只有十几户人家。1936年铁路通到这里以后，村子很快发展起来。到了1950年，村里已经有了学校和医院。1987年，河上修起了一座新桥。如今，这里住着大约两千人。"
      }
    ],
    "embed": [
      {
        "query": "家里的动物",
        "text": "猫在暖和的炉子旁睡觉。\n小猫趴在火炉边上。\n开往北方的火车中午出发。\n今天的公共汽车晚了一个小时。\n加入两个鸡蛋和一勺糖。\n把面粉倒进牛奶里搅匀。"
      },
      {
        "query": "公共交通",
        "text": "猫在暖和的炉子旁睡觉。\n小猫趴在火炉边上。\n开往北方的火车中午出发。\n今天的公共汽车晚了一个小时。\n加入两个鸡蛋和一勺糖。\n把面粉倒进牛奶里搅匀。"
      },
      {
        "query": "怎么做蛋糕",
        "text": "猫在暖和的炉子旁睡觉。\n小猫趴在火炉边上。\n开往北方的火车中午出发。\n今天的公共汽车晚了一个小时。\n加入两个鸡蛋和一勺糖。\n把面粉倒进牛奶里搅匀。"
      }
    ],
    "attention": [
      {
        "text": "小狗追着小猫跑，因为它饿了。"
      }
    ],
    "classify": [
      {
        "text": "这是一部温暖、有趣又感人的电影。"
      }
    ],
    "pair": [
      {
        "text": "一个男人在台上弹吉他。",
        "pair": "有人在观众面前演奏音乐。"
      }
    ],
    "sentiment": [
      {
        "text": "这是一部温暖、有趣又感人的电影。"
      },
      {
        "text": "饭菜是凉的，服务员也很粗鲁。"
      },
      {
        "text": "比想象的好，我还想再看一遍。"
      }
    ],
    "entailment": [
      {
        "text": "一个男人在台上弹吉他。",
        "pair": "有人在观众面前演奏音乐。"
      },
      {
        "text": "一个男人在台上弹吉他。",
        "pair": "那个男人在睡觉。"
      },
      {
        "text": "一个男人在台上弹吉他。",
        "pair": "那个男人很有名。"
      }
    ],
    "tag": [
      {
        "text": "李明从上海搬到北京，在中国红十字会工作。"
      }
    ],
    "answer": [
      {
        "question": "这座桥是谁设计的？",
        "context": "河上的这座老桥是陈志远在1932年设计的。它是当地第一座钢桥。1958年，一场洪水冲毁了两个桥拱，镇上用了九年时间才把它们重新修好。"
      },
      {
        "question": "这座桥是用什么造的？",
        "context": "河上的这座老桥是陈志远在1932年设计的。它是当地第一座钢桥。1958年，一场洪水冲毁了两个桥拱，镇上用了九年时间才把它们重新修好。"
      },
      {
        "question": "是什么冲毁了桥拱？",
        "context": "河上的这座老桥是陈志远在1932年设计的。它是当地第一座钢桥。1958年，一场洪水冲毁了两个桥拱，镇上用了九年时间才把它们重新修好。"
      }
    ],
    "choose": [
      {
        "passage": "小明想去游泳，可是天色阴沉，风也很大。他把毛巾放回抽屉，拿起了一本书。",
        "question": "小明为什么留在家里？",
        "options": [
          "因为天气不好。",
          "因为他的毛巾丢了。",
          "因为他不会游泳。",
          "因为他读完了那本书。"
        ]
      }
    ]
  },
  "ja": {
    "fill_mask": [
      {
        "text": "冬は[MASK]が降るので、暖かい[MASK]を着ます。"
      },
      {
        "text": "彼女は[MASK]を開けて、外の空気を入れた。"
      },
      {
        "text": "喉が渇いたので、冷たい[MASK]を飲みました。"
      }
    ],
    "sentence_order": [
      {
        "a": "彼女はコートを着て、鍵を探した。",
        "b": "それからドアに鍵をかけて、家を出た。"
      }
    ],
    "coherence": [
      {
        "text": "この村は明治の初めに、二人の兄弟によって開かれた。1908年に鉄道が通ると、村は急速に大きくなった。1930年には、学校と銀行ができていた。1964年には、川に新しい橋が架けられた。現在は、およそ二千人が暮らしている。"
      }
    ],
    "embed": [
      {
        "query": "家で飼っている動物",
        "text": "猫が暖かいストーブのそばで寝ている。\n子猫が暖炉の前で横になっている。\n北へ向かう列車は正午に出発する。\n今日はバスが一時間も遅れた。\n卵を二つと砂糖を大さじ一杯加える。\n小麦粉を牛乳に入れてよく混ぜる。"
      },
      {
        "query": "バスや電車",
        "text": "猫が暖かいストーブのそばで寝ている。\n子猫が暖炉の前で横になっている。\n北へ向かう列車は正午に出発する。\n今日はバスが一時間も遅れた。\n卵を二つと砂糖を大さじ一杯加える。\n小麦粉を牛乳に入れてよく混ぜる。"
      },
      {
        "query": "ケーキの作り方",
        "text": "猫が暖かいストーブのそばで寝ている。\n子猫が暖炉の前で横になっている。\n北へ向かう列車は正午に出発する。\n今日はバスが一時間も遅れた。\n卵を二つと砂糖を大さじ一杯加える。\n小麦粉を牛乳に入れてよく混ぜる。"
      }
    ],
    "attention": [
      {
        "text": "犬が猫を追いかけたのは、お腹が空いていたからだ。"
      }
    ],
    "classify": [
      {
        "text": "温かくて笑えて、静かに心に残る映画だった。"
      }
    ],
    "pair": [
      {
        "text": "男の人が舞台でギターを弾いている。",
        "pair": "誰かが観客の前で音楽を演奏している。"
      }
    ],
    "sentiment": [
      {
        "text": "温かくて笑えて、静かに心に残る映画だった。"
      },
      {
        "text": "料理は冷めていて、店員の態度も悪かった。"
      },
      {
        "text": "思ったより良くて、もう一度見たい。"
      }
    ],
    "entailment": [
      {
        "text": "男の人が舞台でギターを弾いている。",
        "pair": "誰かが観客の前で音楽を演奏している。"
      },
      {
        "text": "男の人が舞台でギターを弾いている。",
        "pair": "その男の人は眠っている。"
      },
      {
        "text": "男の人が舞台でギターを弾いている。",
        "pair": "その男の人は有名だ。"
      }
    ],
    "tag": [
      {
        "text": "田中一郎は大阪から東京に引っ越し、日本赤十字社で働いている。"
      }
    ],
    "answer": [
      {
        "question": "この橋を設計したのは誰ですか。",
        "context": "川に架かるこの古い橋は、1932年に山本清が設計した。この谷で初めての鉄の橋だった。1958年の洪水でアーチが二つ崩れ、町が建て直すのに九年かかった。"
      },
      {
        "question": "橋は何でできていますか。",
        "context": "川に架かるこの古い橋は、1932年に山本清が設計した。この谷で初めての鉄の橋だった。1958年の洪水でアーチが二つ崩れ、町が建て直すのに九年かかった。"
      },
      {
        "question": "アーチを崩したのは何ですか。",
        "context": "川に架かるこの古い橋は、1932年に山本清が設計した。この谷で初めての鉄の橋だった。1958年の洪水でアーチが二つ崩れ、町が建て直すのに九年かかった。"
      }
    ],
    "choose": [
      {
        "passage": "太郎は泳ぎに行きたかったが、空は暗く、風も強かった。彼はタオルを引き出しに戻し、代わりに本を手に取った。",
        "question": "太郎はなぜ家にいましたか。",
        "options": [
          "天気が悪かったから。",
          "タオルをなくしたから。",
          "泳げないから。",
          "本を読み終えていたから。"
        ]
      }
    ]
  }
};
