// Templates and hooks that all modules use: preact's, with htm's syntax. Values put into a template are text, never markup.
import { h, render } from "preact";
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import htm from "htm";

export const html = htm.bind(h);
export { render, useCallback, useEffect, useMemo, useRef, useState };
