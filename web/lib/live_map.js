// The map that a page follows: everything once, then what has changed. At a moment of the past: everything, once.
import { useEffect, useState } from "./html.js";
import { get } from "./api.js";
import { newest, pauseMs, spreadMs } from "./live.js";
import { moment, place } from "./location.js";
import { taken } from "./map_model.js";
import { shown } from "./resource.js";
import { useStore } from "./store.js";

/** @typedef {import("./map_model.js").Model} Model */

/** @returns {{data: Model | null, more: boolean, error: any, loading: boolean, again: () => void}} */
export function useMap() {
  useStore(place);
  const at = moment();
  const [round, setRound] = useState(0);
  const [state, setState] = useState(/** @type {{at: string, data: Model | null, error: any}} */ ({ at: "", data: null, error: null }));

  useEffect(() => {
    const ending = new AbortController();
    /** @type {Model | null} */
    let model = null;
    let timer = 0;
    let asking = false;
    let failed = false;
    let next = 0;
    const ask = async () => {
      timer = 0;
      asking = true;
      const began = performance.now();
      try {
        const answer = await get("/v1/map/columns", model?.cursor ? { since: model.cursor } : {}, { signal: ending.signal });
        model = taken(model, answer.data);
        failed = false;
        shown.set({ sequence: model.sequence, at: answer.at || model.at });
        setState({ at, data: model, error: null });
        next = performance.now() + Math.max(pauseMs.value, 5 * (performance.now() - began));
      } catch (error) {
        if (ending.signal.aborted) return;
        failed = true;
        const refused = /** @type {any} */ (error);
        setState((old) => ({ at, data: refused.status === 0 ? old.data : null, error }));
        next = performance.now() + 3000;
      }
      asking = false;
      later();
    };
    // An answer may be a little behind what was heard: it is asked again until it is not.
    const later = () => {
      if (at || asking || timer || document.hidden || !(failed || (model?.sequence ?? 0) < newest.value)) return;
      timer = window.setTimeout(ask, Math.max(20 + spreadMs(), next - performance.now()));
    };
    ask();
    const ends = newest.follow(later);
    document.addEventListener("visibilitychange", later);
    return () => {
      ending.abort();
      ends();
      document.removeEventListener("visibilitychange", later);
      clearTimeout(timer);
    };
  }, [at, round]);

  return { data: state.data, error: state.at === at ? state.error : null, loading: state.at !== at || (!state.data && !state.error), more: false, again: () => setRound((each) => each + 1) };
}
