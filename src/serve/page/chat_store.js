// What stays in this browser: conversation and settings until they are cleared, the API key until the tab is closed. A browser that
// keeps nothing is no error: the page then forgets.

// A store that may be forbidden or full.
class Shelf {
  constructor(name) {
    this.name = name;
  }

  get(key) {
    try {
      return window[this.name].getItem(key);
    } catch {
      return null;
    }
  }

  // Whether it is kept.
  set(key, value) {
    try {
      if (value === null) window[this.name].removeItem(key);
      else window[this.name].setItem(key, value);
      return true;
    } catch {
      return false;
    }
  }

  getJson(key) {
    try {
      return JSON.parse(this.get(key));
    } catch {
      return null;
    }
  }
}

const kConversation = "espalier.conversation", kSettings = "espalier.settings", kKey = "espalier.key";
const kMostRounds = 1500000;  // characters of JSON: rounds are most of an answer, and a browser keeps five millions

const isText = (value) => typeof value === "string";
const isList = (value, item) => Array.isArray(value) && value.every(item);

// Believes nothing: an older page may have written it.
const isAnswer = (answer) => answer !== null && typeof answer === "object" && isText(answer.text) &&
  isList(answer.runs, (run) => isList(run, Number.isFinite) && run.length === 3) && isList(answer.rounds, isRound);
const isRound = (round) => round !== null && typeof round === "object" && isList(round.parent, Number.isInteger) && isList(round.text, isText) &&
  isList(round.score, Number.isFinite) && Array.isArray(round.accepted) && round.parent.length > 0 &&
  [round.text, round.score, round.accepted].every((list) => list.length === round.parent.length) &&
  round.parent.every((parent, row) => parent >= 0 && (row === 0 ? parent === 0 : parent < row));
const isTurn = (turn) => turn !== null && typeof turn === "object" && isText(turn.question) && isAnswer(turn.answer);

class ChatStore {
  constructor() {
    this.lasting = new Shelf("localStorage");
    this.passing = new Shelf("sessionStorage");
  }

  get turns() {
    const turns = this.lasting.getJson(kConversation);
    return isList(turns, isTurn) ? turns : [];
  }

  // Rounds of the newest answers first; where the browser has no room even for those, texts alone.
  saveTurns(turns) {
    if (turns.length === 0) return this.lasting.set(kConversation, null);
    return [kMostRounds, kMostRounds / 10, 0].some((most) => this.lasting.set(kConversation, this.written(turns, most)));
  }

  written(turns, most) {
    let room = most;
    const texts = [...turns].reverse().map((turn) => {
      const {answer} = turn, whole = JSON.stringify(turn);
      const bare = JSON.stringify({...turn, answer: {...answer, rounds: [], forgotten: answer.rounds.length || answer.forgotten}});
      room -= whole.length - bare.length;
      return room >= 0 ? whole : bare;
    });
    return `[${texts.reverse().join(",")}]`;
  }

  get settings() {
    const settings = this.lasting.getJson(kSettings);
    return settings !== null && typeof settings === "object" ? settings : {};
  }
  set settings(settings) {
    this.lasting.set(kSettings, JSON.stringify(settings));
  }

  get key() {
    return this.memory ?? this.passing.get(kKey) ?? "";
  }
  set key(key) {
    this.memory = this.passing.set(kKey, key === "" ? null : key) ? undefined : key;
  }
}
