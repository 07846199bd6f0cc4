"use strict";
// Requests to the server other than the live view.
//
// konvene.request(path, body) returns a promise of the answer's JSON; with a body it is a POST. It is
// rejected with an Error whose message is the server's sentence, and whose `hint` is its advice or null.
var konvene = konvene || {};
(() => {
  async function request(path, body) {
    const options =
      body === undefined
        ? {}
        : {
            method: "POST",
            headers: { "Content-Type": "application/json", "X-Konvene-Console": "1" },
            body: JSON.stringify(body),
          };
    let response;
    try {
      response = await fetch(path, { ...options, credentials: "same-origin", cache: "no-store" });
    } catch {
      throw failure("The console does not answer.", "Check that `konvene console` is still running.");
    }
    let answer = null;
    try {
      answer = await response.json();
    } catch {
      /* no JSON */
    }
    if (!response.ok) {
      throw failure(
        (answer && answer.error) || `The console answered with HTTP status ${response.status}.`,
        (answer && answer.hint) || null,
      );
    }
    return answer;
  }

  function failure(message, hint) {
    const error = new Error(message);
    error.hint = hint;
    return error;
  }

  konvene.request = request;
})();
