// Which letters of an answer were drafted. An event brings text, rounds, and how many tokens are complete with that text; the last of
// its letters may belong to one more. A round says which tokens its step gave, with their texts, except the last, the teacher's own,
// whose text is told as the root of the next round. A token whose bytes are no whole characters has U+FFFD in its text, and a
// control token is in no text at all: letters between tokens that are found are shared out among those that are not.
class DraftedText {
  constructor() {
    this.round = -1;  // the last that is known
    this.tokens = [this.ownToken()];  // that are not complete; the first of an answer belongs to no round
  }

  // The teacher's own: the last that is known, with a text that is not known yet.
  ownToken() {
    return {text: null, drafted: false, round: this.round, taken: ""};
  }

  // The event's text in runs: {text, drafted, round}.
  push(text, rounds, complete) {
    rounds.forEach((round) => this.addRound(round));
    while (this.tokens.length < complete) this.tokens.push(this.ownToken());
    const runs = [];
    for (let first = 0; first < complete;) {
      const {length, next} = this.find(text, first, complete);
      runs.push(...this.share(text.slice(0, length), first, next));
      text = text.slice(length);
      first = next;
    }
    this.tokens.splice(0, complete);
    return [...runs, ...this.beginning(text)];
  }

  addRound(round) {
    if (this.tokens.length > 0) this.tokens.at(-1).text = round.text[0];  // else it is complete
    this.round += 1;
    round.accepted.forEach((accepted, row) => {
      if (accepted && row > 0) this.tokens.push({...this.ownToken(), text: round.text[row], drafted: true});
    });
    this.tokens.push(this.ownToken());
  }

  // Token `first` stands at the beginning of the text: its length. Else the letters before the next token that is found.
  find(text, first, end) {
    const own = this.textLeft(this.tokens[first]);
    if (own !== null && text.startsWith(own)) return {length: own.length, next: first + 1};
    for (let next = first + 1; next < end; ++next) {
      const at = this.placeOf(this.tokens[next].text, text);
      if (at >= 0) return {length: at, next};
    }
    return {length: text.length, next: end};
  }

  // -1: it is not there, or it cannot be told where.
  placeOf(token, text) {
    return token === null || token === "" || token.includes("\ufffd") ? -1 : text.indexOf(token);
  }

  // Null: not known, or not how it began.
  textLeft({text, taken, round}) {
    if (text === null || text.startsWith(taken)) return text === null ? null : text.slice(taken.length);
    // SentencePiece drops the space in front of a text.
    return round < 0 && text.startsWith(` ${taken}`) ? text.slice(taken.length + 1) : null;
  }

  // Of a token that is not complete.
  beginning(text) {
    if (this.tokens.length > 0) return this.share(text, 0, 1);
    return text === "" ? [] : [{text, drafted: false, round: this.round}];
  }

  share(text, first, next) {
    const letters = [...text], count = next - first;
    return this.tokens.slice(first, next).flatMap((token, i) => {
      const part = letters.slice(Math.floor(letters.length * i / count), Math.floor(letters.length * (i + 1) / count)).join("");
      token.taken += part;
      return part === "" ? [] : [{text: part, drafted: token.drafted, round: token.round}];
    });
  }
}
