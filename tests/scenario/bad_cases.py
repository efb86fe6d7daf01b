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
# what: (piece, its replacement with @ where the message points, key, facts: found, allowed or meant)
CASES = {
    "a misspelt section": ("cascade:\n", "@cascad:\n", "cascad", "'cascade'?"),
    "a misspelt key": ("  slots: 5", "  @slot: 5", "cascade.slot", "'slots'?"),
    "a misspelt key in an arm": (
        "      model: ltr", "      @modle: ltr", "arms.ltr.pre_ranking.modle", "'model'?",
    ),
    "a key that belongs nowhere": ("seed: 1", "@colour: red\nseed: 1", "colour", "'colour' name,"),
    "a key that an arm cannot change": (
        "    pre_ranking:\n      model: ltr", "    @world: {users: 5}",
        "arms.ltr.world", "'world' retrieval, pre_ranking, slots",
    ),
    "a model that sees the bid": (
        "[user, context, G1]", "[user, @bid, G1]",
        "models.logloss.features[1]", "bid fusion",
    ),
    "a history in a world without one": (
        "[user, context, G1]", "[user, @history, G1]",
        "models.logloss.features[1]", "world.history",
    ),
    "an embedding of nothing": (
        "    epochs: 3", "    @embedding: 4\n    epochs: 3",
        "models.logloss.embedding", "user_id, ad_id, advertiser_id, history",
    ),
    "a ranker without a probability": (
        "    pre_ranking:\n      model: ltr", "    ranking:\n      @model: ltr",
        "arms.ltr.ranking.model", "'ltr' probability logloss distill",
    ),
    "text for a number": ("  users: 400", '  @users: "400"', "world.users", "'400' 400"),
    "a word for a number": (
        "    size: 50", "    @size: many", "cascade.pre_ranking.size", "'many' 2 2**31",
    ),
    "a thousands comma": ("  log: 1000", "  @log: 1,000", "phases.log", "'1,000' 1000"),
    "a fraction for a count": (
        "    epochs: 3", "    @epochs: 2.5", "models.logloss.epochs", "2.5 1 10,000",
    ),
    "a float for a count": ("  ads: 2000", "  @ads: 2e3", "world.ads", "2000"),
    "a truth value for a number": ("seed: 1", "@seed: true", "seed", "true 0 2**63"),
    "a list for a number": ("  slots: 5", "  @slots: [5]", "cascade.slots", "list 1 1,000"),
    "a number for a list": (
        "features: [user, context, G1]", "@features: 3", "models.logloss.features", "3 [3]",
    ),
    "a number for a section": (
        "report:\n  baseline: logloss", "@report: 3", "report", "3 baseline, resamples,",
    ),
    "a section without content": (
        "  bids:\n    median: 1.0\n    sigma: 0.35", "  @bids:", "world.bids", "median, sigma,",
    ),
    "an arm without content": ("  logloss: {}", "  @logloss:", "arms.logloss", "{}"),
    "a value forgotten in an arm": (
        "      model: ltr", "      @model:", "arms.ltr.pre_ranking.model", "inherit",
    ),
    "not a number": ("    sigma: 0.35", "    @sigma: .nan", "world.bids.sigma", "nan 0 3"),
    "infinity": ("    sigma: 0.35", "    @sigma: .inf", "world.bids.sigma", "inf 0 3"),
    "a number too large to be one": (
        "    median: 1.0", "    @median: 1e999", "world.bids.median", "inf 10,000",
    ),
    "a negative bid": ("    median: 1.0", "    @median: -1.0", "world.bids.median", "-1.0 0 10,000"),
    "a bid of nothing": ("    median: 1.0", "    @median: 0", "world.bids.median", "0 10,000"),
    "a negative seed": ("seed: 1", "@seed: -1", "seed", "from 0"),
    "more exploration than requests": (
        "  exploration: 0.01", "  @exploration: 1.5", "phases.exploration", "1.5 0 1",
    ),
    "a bid range of one": (
        "auction:", "bidding: {@range: 1.0}\nauction:", "bidding.range", "1.0 0 1",
    ),
    "an empty world": ("  users: 400", "  @users: 0", "world.users", "from 1"),
    "an unknown pricing": ("pricing: gsp", "@pricing: gps", "auction.pricing", "'gps' 'gsp'?"),
    "an unknown recipe": (
        "    recipe: ltr", "    @recipe: rankk", "models.ltr.recipe", "'rankk' logloss, distill, ltr,",
    ),
    "no bid in the auction": (
        "  slots: 5", "  ranking: {@bid: none}\n  slots: 5", "cascade.ranking.bid", "'none' init, opt",
    ),
    "a run name with blanks": ("name: sound", "@name: My Run", "name", "'My my_run"),
    "no name": (
        "name: sound\nseed: 1\n", "@seed: 1\n", "name", "missing",
    ),
    "no arms": (SOUND, "@name: sound\n", "arms", "missing mapping"),
    "arms without an arm": (ARMS, "@arms: {}\n", "arms", "empty"),
    "a model name with a dot": (
        "  rank: {kind", "  @ra.nk: {}\n  rank: {kind", "models.ra.nk", "'ra.nk' '_' '-'",
    ),
    "no runner-up": ("    size: 50", "    @size: 5", "cascade.pre_ranking.size", "5 6"),
    "no runner-up in an arm": (
        "model: ltr\n", "model: ltr\n      @size: 4\n", "arms.ltr.pre_ranking.size", "4 6",
    ),
    "more slots than effects": ("  slots: 5", "  @slots: 6", "cascade.slots", "6 5 world.slot_effects"),
    "more slots than effects in an arm": (
        "  logloss: {}", "  logloss: {@slots: 6}", "arms.logloss.slots", "6 5",
    ),
    "pre-ranking larger than retrieval": (
        "    size: 50", "    @size: 201", "cascade.pre_ranking.size", "201 200",
    ),
    "an arm that retrieves too little": (
        "  logloss: {}", "  logloss: {retrieval: {@size: 40}}",
        "arms.logloss.retrieval.size", "40 50",
    ),
    "retrieval larger than the world": (
        "    size: 200", "    @size: 2001", "cascade.retrieval.size", "2001 2000",
    ),
    "more advertisers than ads": (
        "  advertisers: 200", "  @advertisers: 2001", "world.advertisers", "2001 2000",
    ),
    "slot effects that rise": ("0.74, 0.66", "0.74, @0.76", "world.slot_effects[3]", "0.76 0.74"),
    "a slot effect above one": ("[1.0, 0.85", "[@1.1, 0.85", "world.slot_effects[0]", "1.1 0 1"),
    "a negative slot effect": ("0.66, 0.6]", "0.66, @-0.6]", "world.slot_effects[4]", "-0.6 0 1"),
    "vcg with squashing": (
        "pricing: gsp, squashing: 1.0", "pricing: vcg, @squashing: 0.5", "auction.squashing", "vcg 0.5 1",
    ),
    "an unknown model": (
        "    model: logloss", "    @model: loglos", "cascade.pre_ranking.model", "'loglos' 'logloss'?",
    ),
    "an unknown model in an arm": (
        "      model: ltr", "      @model: lrt", "arms.ltr.pre_ranking.model", "'lrt' 'ltr'?",
    ),
    "an unknown fusion": (
        "    size: 50", "    size: 50\n    @fusion: ecp", "cascade.pre_ranking.fusion", "'ecpm'?",
    ),
    "an unknown feature": (
        "[user, context, G1]", "[user, @contxt, G1]", "models.logloss.features[1]", "'context'?",
    ),
    "a feature twice": (
        "[user, context, G1]", "[user, G1, @user]", "models.logloss.features[2]", "'user' twice",
    ),
    "an unknown retrieval group": (
        "    group: G1", "    @group: G7", "cascade.retrieval.group", "'G7' G1, G4",
    ),
    "an unknown anti-correlated group": (
        "anti_correlated_group: G4", "@anti_correlated_group: H",
        "world.conversion.anti_correlated_group", "'H' G1, G4",
    ),
    "a group named like a feature": (
        "    G4: {dims", "    @tier: {}\n    G4: {dims", "world.groups.tier", "'tier' built-in",
    ),
    "an unknown phase": ("data: [log]", "data: [@logs]", "models.logloss.data[0]", "'logs' 'log'?"),
    "a phase without requests": (
        "data: [log]", "@data: [cold_start]", "models.logloss.data", "cold_start phases.cold_start 0",
    ),
    "no shadow to learn from": ("  shadow: 500", "  @shadow: 0", "phases.shadow", "0 'ltr' 1"),
    "an unknown teacher": ("teacher: rank", "@teacher: ranker", "models.ltr.teacher", "'ranker' 'rank'?"),
    "a model that teaches itself": (
        "teacher: rank", "@teacher: ltr", "models.ltr.teacher", "own teacher rank, logloss",
    ),
    "students in a circle": (
        "  ltr:\n    recipe: ltr\n    teacher: rank",
        "  d: {recipe: distill, teacher: ltr}\n  ltr:\n    recipe: ltr\n    @teacher: d",
        "models.ltr.teacher", "'d' distill rank, logloss",
    ),
    "a student without a teacher": (
        "  ltr:\n    recipe: ltr\n    teacher: rank", "  @ltr:\n    recipe: ltr",
        "models.ltr.teacher", "missing ltr rank, logloss",
    ),
    "a teacher for a model that needs none": (
        "    data: [log]", "    data: [log]\n    @teacher: rank",
        "models.logloss.teacher", "logloss distill ltr",
    ),
    "more chunks than ads": (
        "    chunks: 5", "    @chunks: 51", "models.ltr.chunks", "51 sample.per_request 50",
    ),
    "a model named like a seat": (
        "  rank: {kind", "  @truth: {}\n  rank: {kind", "models.truth", "'truth' built",
    ),
    "an arm named like an automatic one": (
        "  logloss: {}", "  logloss: {}\n  @ranker: {}", "arms.ranker", "'ranker'",
    ),
    "a fusion named like the built-in one": ("  cautious:", "  @ecpm:", "fusions.ecpm", "'ecpm' built-in"),
    "a fusion without the bid": ("bid: 0.5", "@bid: 0", "fusions.cautious.bid", "0 10"),
    "a misspelt baseline": (
        "baseline: logloss", "@baseline: loglos", "report.baseline", "'loglos' 'logloss'?",
    ),
    "an unknown kind": (
        "{kind: coaction}", "{@kind: co-action}", "models.rank.kind", "'co-action' 'coaction'?",
    ),
    "a model file that is not there": (
        "{kind: coaction}", '{@kind: "mine/net.py:Net"}', "models.rank.kind", "'mine/net.py'",
    ),
    "a module that is not there": (
        "{kind: coaction}", '{@kind: "no_such_package.net:Net"}',
        "models.rank.kind", "'no_such_package'",
    ),
    "a date among the options": (
        "{kind: coaction}", "{options: {@since: 2024-01-01}}", "models.rank.options.since", "2024-01-01 YAML",
    ),
    "a key twice": (
        "  slots: 5", "  slots: 5\n  @slots: 4", "cascade.slots", "'slots' 23",
    ),
    "a section twice": ("report:", "@seed: 2\nreport:", "seed", "'seed' 3"),
}
# Mistakes in the YAML itself: (piece, its replacement, facts)
SYNTAX = {
    "a tab": ("  users: 400", "@\tusers: 400", "tab"),
    "a bracket left open": (
        "context, G1]\n    data: [log]", "context, G1\n    data@: [log]", "31 bracket",
    ),
    "two colons": ("  slots: 5", "  slots: 5@: 6", "':'"),
    "a quote left open": ("baseline: logloss\n", "baseline: 'logloss\n@", "quote"),
    "a second document": ("arms:", "@---\narms:", "'---'"),
    "an unknown alias": ("  users: 400", "  users: @*count", "alias 'count'"),
    "a forbidden character": ("name: sound", "name: so@\x07und", "'\\x07'"),
}
# fmt: on
