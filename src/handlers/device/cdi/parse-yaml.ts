import { parse } from 'yaml'

/**
 * Parses YAML into the values that JSON would give. It follows version 1.1, like the tools that write these files: `0660`
 * is octal. This file is a bundle of its own, loaded when a container first requests a CDI device, because the parser is
 * as large as a third of the agent.
 */
export function parseYaml(text: string): unknown {
  return parse(text, { version: '1.1' })
}
