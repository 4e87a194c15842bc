import { parse } from 'yaml'

/**
 * Parses YAML 1.1, as the tools that write these files do: `0660` is octal. This file is a bundle of its own, loaded
 * for the first CDI request, because the parser is as large as a third of the agent.
 */
export function parseYaml(text: string): unknown {
  return parse(text, { version: '1.1' })
}
