// A value that components follow: the smallest shared state.
import { useEffect, useState } from "./html.js";

/**
 * @template T
 */
export class Store {
  /** @param {T} value */
  constructor(value) {
    this.value = value;
    /** @type {Set<(value: T) => void>} */
    this.followers = new Set();
  }

  /** @param {T} value */
  set(value) {
    if (value === this.value) return;
    this.value = value;
    for (const follower of [...this.followers]) follower(value);
  }

  /** @param {(value: T) => void} follower @returns {() => void} what ends it */
  follow(follower) {
    this.followers.add(follower);
    return () => this.followers.delete(follower);
  }
}

/**
 * The value of a store, in a component that is drawn again when it changes.
 * @template T
 * @param {Store<T>} store
 * @returns {T}
 */
export function useStore(store) {
  const [value, setValue] = useState(store.value);
  useEffect(() => {
    setValue(store.value);
    return store.follow(setValue);
  }, [store]);
  return value;
}
