import { parse } from 'yaml'

/**
 * What YAML says, as JSON would. The parser is loaded when the first container asks for a device: it is as large as a
 * third of the agent. By the rules of version 1.1, as the tools read it that write these files: `0660` is octal.
 */
export function parseYaml(text: string): unknown {
  return parse(text, { version: '1.1' })
}
