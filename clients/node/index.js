"use strict";

const { detect } = require("./lib/detect.js");
const { TooFrequent, Verdict, WeirError } = require("./lib/verdict.js");
const { Hold, Weir } = require("./lib/weir.js");

module.exports = { Hold, TooFrequent, Verdict, Weir, WeirError, detect };
