"""Mutations of a sound scenario, one mistake each.

A case replaces one piece of the text. The `@` in the new piece marks where the message must point to; it is
taken out before the file is written.
"""

SOUND = """\
# A sound scenario.
name: sound
seed: 1
world:
  users: 400
  ads: 2000
  advertisers: 200
  groups:
    G1: {dims: 4, weight: 0.8}
    G4: {dims: 4, weight: 1.3}
  bids:
    median: 1.0
    sigma: 0.35
  conversion: {anti_correlated_group: G4}
  slot_effects: [1.0, 0.85, 0.74, 0.66, 0.6]
cascade:
  retrieval:
    size: 200
    group: G1
  pre_ranking:
    model: logloss
    size: 50
  slots: 5
fusions:
  cautious: {pctr: 1.0, bid: 0.5}
auction: {pricing: gsp, squashing: 1.0}
models:
  rank: {kind: coaction}
  logloss:
    kind: towers
    features: [user, context, G1]
    data: [log]
    epochs: 3
  ltr:
    recipe: ltr
    teacher: rank
    chunks: 5
phases:
  cold_start: 0
  log: 1000
  exploration: 0.01
  shadow: 500
arms:
  logloss: {}
  ltr:
    pre_ranking:
      model: ltr
report:
  baseline: logloss
"""
ARMS = SOUND[SOUND.index("arms:") :]

# fmt: off
# what: (piece, its replacement with @ where the message points, key, words that say what is allowed or meant)
CASES = {
    "a misspelt section": ("cascade:\n", "@cascad:\n", "cascad", "did you mean 'cascade'?"),
    "a misspelt key": ("  slots: 5", "  @slot: 5", "cascade.slot", "did you mean 'slots'?"),
    "a misspelt key in an arm": (
        "      model: ltr", "      @modle: ltr", "arms.ltr.pre_ranking.modle", "'model'?",
    ),
    "a key that belongs nowhere": ("seed: 1", "@colour: red\nseed: 1", "colour", "known: name, description"),
    "a key that an arm cannot change": (
        "    pre_ranking:\n      model: ltr", "    @world: {users: 5}",
        "arms.ltr.world", "known: retrieval, pre_ranking, ranking, slots, auction, bidding",
    ),
    "a model that sees the bid": (
        "[user, context, G1]", "[user, @bid, G1]",
        "models.logloss.features[1]", "a higher bid could hurt an ad",
    ),
    "a history in a world without one": (
        "[user, context, G1]", "[user, @history, G1]",
        "models.logloss.features[1]", "have no history; add world.history, or remove it",
    ),
    "an embedding of nothing": (
        "    epochs: 3", "    @embedding: 4\n    epochs: 3",
        "models.logloss.embedding", "no meaning without user_id, ad_id, advertiser_id, history",
    ),
    "a ranker without a probability": (
        "    pre_ranking:\n      model: ltr", "    ranking:\n      @model: ltr",
        "arms.ltr.ranking.model", "no probability, which prices need; use a logloss or distill model",
    ),
    "text for a number": ("  users: 400", '  @users: "400"', "world.users", "write 400 without quotes"),
    "a word for a number": (
        "    size: 50", "    @size: many", "cascade.pre_ranking.size", "an integer from 2",
    ),
    "a thousands comma": ("  log: 1000", "  @log: 1,000", "phases.log", "write 1000 without quotes"),
    "a fraction for a count": (
        "    epochs: 3", "    @epochs: 2.5", "models.logloss.epochs", "from 1 to 10,000",
    ),
    "a float for a count": ("  ads: 2000", "  @ads: 2e3", "world.ads", "write 2000"),
    "a truth value for a number": ("seed: 1", "@seed: true", "seed", "an integer from 0"),
    "a list for a number": ("  slots: 5", "  @slots: [5]", "cascade.slots", "an integer from 1 to 1,000"),
    "a number for a list": (
        "features: [user, context, G1]", "@features: 3", "models.logloss.features", "list of names",
    ),
    "a number for a section": (
        "report:\n  baseline: logloss", "@report: 3", "report", "a mapping with keys baseline",
    ),
    "a section without content": (
        "  bids:\n    median: 1.0\n    sigma: 0.35", "  @bids:", "world.bids", "no value",
    ),
    "an arm without content": ("  logloss: {}", "  @logloss:", "arms.logloss", "{} for none"),
    "a value forgotten in an arm": (
        "      model: ltr", "      @model:", "arms.ltr.pre_ranking.model", "to inherit",
    ),
    "not a number": ("    sigma: 0.35", "    @sigma: .nan", "world.bids.sigma", "a number from 0 to 3"),
    "infinity": ("    sigma: 0.35", "    @sigma: .inf", "world.bids.sigma", "a number from 0 to 3"),
    "a number too large to be one": (
        "    median: 1.0", "    @median: 1e999", "world.bids.median", "above 0 up to",
    ),
    "a negative bid": ("    median: 1.0", "    @median: -1.0", "world.bids.median", "above 0 up to 10,000"),
    "a bid of nothing": ("    median: 1.0", "    @median: 0", "world.bids.median", "above 0 up to 10,000"),
    "a negative seed": ("seed: 1", "@seed: -1", "seed", "from 0"),
    "more exploration than requests": (
        "  exploration: 0.01", "  @exploration: 1.5", "phases.exploration", "from 0 to 1",
    ),
    "a bid range of one": (
        "auction:", "bidding: {@range: 1.0}\nauction:", "bidding.range", "from 0 to below 1",
    ),
    "an empty world": ("  users: 400", "  @users: 0", "world.users", "from 1"),
    "an unknown pricing": ("pricing: gsp", "@pricing: gps", "auction.pricing", "did you mean 'gsp'?"),
    "an unknown recipe": (
        "    recipe: ltr", "    @recipe: rankk", "models.ltr.recipe", "one of logloss, distill, ltr",
    ),
    "no bid in the auction": (
        "  slots: 5", "  ranking: {@bid: none}\n  slots: 5", "cascade.ranking.bid", "init, opt",
    ),
    "a run name with blanks": ("name: sound", "@name: My Run", "name", "for example 'my_run'"),
    "no name": (
        "name: sound\nseed: 1\n", "@seed: 1\n", "name", "missing; expected a name of lower-case letters",
    ),
    "no arms": (SOUND, "@name: sound\n", "arms", "missing; expected a mapping"),
    "arms without an arm": (ARMS, "@arms: {}\n", "arms", "give at least one"),
    "a model name with a dot": (
        "  rank: {kind", "  @ra.nk: {}\n  rank: {kind", "models.ra.nk", "letters, digits, '_' and '-'",
    ),
    "no runner-up": ("    size: 50", "    @size: 5", "cascade.pre_ranking.size", "use at least 6"),
    "no runner-up in an arm": (
        "model: ltr\n", "model: ltr\n      @size: 4\n", "arms.ltr.pre_ranking.size", "least 6",
    ),
    "more slots than effects": ("  slots: 5", "  @slots: 6", "cascade.slots", "use at most 5"),
    "more slots than effects in an arm": (
        "  logloss: {}", "  logloss: {@slots: 6}", "arms.logloss.slots", "most 5",
    ),
    "pre-ranking larger than retrieval": (
        "    size: 50", "    @size: 201", "cascade.pre_ranking.size", "at most 200",
    ),
    "an arm that retrieves too little": (
        "  logloss: {}", "  logloss: {retrieval: {@size: 40}}",
        "arms.logloss.retrieval.size", "use at least 50",
    ),
    "retrieval larger than the world": (
        "    size: 200", "    @size: 2001", "cascade.retrieval.size", "at most 2000",
    ),
    "more advertisers than ads": (
        "  advertisers: 200", "  @advertisers: 2001", "world.advertisers", "at most 2000",
    ),
    "slot effects that rise": ("0.74, 0.66", "0.74, @0.76", "world.slot_effects[3]", "never rise"),
    "a slot effect above one": ("[1.0, 0.85", "[@1.1, 0.85", "world.slot_effects[0]", "above 0 up to 1"),
    "a negative slot effect": ("0.66, 0.6]", "0.66, @-0.6]", "world.slot_effects[4]", "above 0 up to 1"),
    "vcg with squashing": (
        "pricing: gsp, squashing: 1.0", "pricing: vcg, @squashing: 0.5", "auction.squashing", "use 1,",
    ),
    "an unknown model": (
        "    model: logloss", "    @model: loglos", "cascade.pre_ranking.model", "mean 'logloss'?",
    ),
    "an unknown model in an arm": (
        "      model: ltr", "      @model: lrt", "arms.ltr.pre_ranking.model", "'ltr'?",
    ),
    "an unknown fusion": (
        "    size: 50", "    size: 50\n    @fusion: ecp", "cascade.pre_ranking.fusion", "'ecpm'?",
    ),
    "an unknown feature": (
        "[user, context, G1]", "[user, @contxt, G1]", "models.logloss.features[1]", "'context'?",
    ),
    "a feature twice": (
        "[user, context, G1]", "[user, G1, @user]", "models.logloss.features[2]", "remove one",
    ),
    "an unknown retrieval group": (
        "    group: G1", "    @group: G7", "cascade.retrieval.group", "known: G1, G4",
    ),
    "an unknown anti-correlated group": (
        "anti_correlated_group: G4", "@anti_correlated_group: H",
        "world.conversion.anti_correlated_group", "known: G1, G4",
    ),
    "a group named like a feature": (
        "    G4: {dims", "    @tier: {}\n    G4: {dims", "world.groups.tier", "another name",
    ),
    "an unknown phase": ("data: [log]", "data: [@logs]", "models.logloss.data[0]", "did you mean 'log'?"),
    "a phase without requests": (
        "data: [log]", "@data: [cold_start]", "models.logloss.data", "set phases.cold_start above 0",
    ),
    "no shadow to learn from": ("  shadow: 500", "  @shadow: 0", "phases.shadow", "use at least 1"),
    "an unknown teacher": ("teacher: rank", "@teacher: ranker", "models.ltr.teacher", "did you mean 'rank'?"),
    "a model that teaches itself": (
        "teacher: rank", "@teacher: ltr", "models.ltr.teacher", "one of: rank, logloss",
    ),
    "students in a circle": (
        "  ltr:\n    recipe: ltr\n    teacher: rank",
        "  d: {recipe: distill, teacher: ltr}\n  ltr:\n    recipe: ltr\n    @teacher: d",
        "models.ltr.teacher", "'d' is itself a student (recipe distill); use one of: rank, logloss",
    ),
    "a student without a teacher": (
        "  ltr:\n    recipe: ltr\n    teacher: rank", "  @ltr:\n    recipe: ltr",
        "models.ltr.teacher", "Known: rank, logloss",
    ),
    "a teacher for a model that needs none": (
        "    data: [log]", "    data: [log]\n    @teacher: rank",
        "models.logloss.teacher", "only for distill and ltr",
    ),
    "more chunks than ads": (
        "    chunks: 5", "    @chunks: 51", "models.ltr.chunks", "sample.per_request is 50",
    ),
    "a model named like a seat": (
        "  rank: {kind", "  @truth: {}\n  rank: {kind", "models.truth", "another name",
    ),
    "an arm named like an automatic one": (
        "  logloss: {}", "  logloss: {}\n  @ranker: {}", "arms.ranker", "another",
    ),
    "a fusion named like the built-in one": ("  cautious:", "  @ecpm:", "fusions.ecpm", "another name"),
    "a fusion without the bid": ("bid: 0.5", "@bid: 0", "fusions.cautious.bid", "above 0 up to 10"),
    "a misspelt baseline": (
        "baseline: logloss", "@baseline: loglos", "report.baseline", "did you mean 'logloss'?",
    ),
    "an unknown kind": (
        "{kind: coaction}", "{@kind: co-action}", "models.rank.kind", "did you mean 'coaction'?",
    ),
    "a model file that is not there": (
        "{kind: coaction}", '{@kind: "mine/net.py:Net"}', "models.rank.kind", "no file 'mine/net.py'",
    ),
    "a module that is not there": (
        "{kind: coaction}", '{@kind: "no_such_package.net:Net"}',
        "models.rank.kind", "no module 'no_such_package'",
    ),
    "a date among the options": (
        "{kind: coaction}", "{options: {@since: 2024-01-01}}", "models.rank.options.since", "plain YAML",
    ),
    "a key twice": (
        "  slots: 5", "  slots: 5\n  @slots: 4", "cascade.slots", "first given on line 23; remove one",
    ),
    "a section twice": ("report:", "@seed: 2\nreport:", "seed", "first given on line 3; remove one"),
}
# Mistakes in the YAML itself: (piece, its replacement, words that say what to do)
SYNTAX = {
    "a tab": ("  users: 400", "@\tusers: 400", "use spaces"),
    "a bracket left open": (
        "context, G1]\n    data: [log]", "context, G1\n    data@: [log]", "opened on line 31; close it",
    ),
    "two colons": ("  slots: 5", "  slots: 5@: 6", "check the indentation"),
    "a quote left open": ("baseline: logloss\n", "baseline: 'logloss\n@", "close the bracket or quote"),
    "a second document": ("arms:", "@---\narms:", "one document"),
    "an unknown alias": ("  users: 400", "  users: @*count", "undefined alias"),
    "a forbidden character": ("name: sound", "name: so@\x07und", "remove it"),
}
# fmt: on
