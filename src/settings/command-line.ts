import { parseValue, readSettings } from './read-settings.ts'
import { bareFlag, type Setting } from './setting-types.ts'
import { type AgentConfig, SETTING_KEYS, SETTINGS } from './settings.ts'

/** Names a TOML file, which is then the only source of settings. */
const CONFIG_FILE_KEY = 'agent.config_file'

/** The path of the first `agent.config_file=`, if any. */
export function configFileOf(commandLine: string): string | undefined {
  return tokensOf(commandLine).find(({ key, value }) => key === CONFIG_FILE_KEY && value !== undefined)?.value
}

/** Keys match exactly, the last of several wins, unknown ones are ignored. Throws INVALID_ARGUMENT for a bad value. */
export function commandLineSettings(commandLine: string): Partial<AgentConfig> {
  const tokens = tokensOf(commandLine)
  const keys: ReadonlySet<string | undefined> = new Set(tokens.map(({ key }) => key))
  return readSettings((setting) => {
    if (!keys.has(setting.commandLine)) return undefined
    let last: unknown
    for (const token of tokens.slice(firstTokenFor(tokens, setting))) {
      if (token.key !== setting.commandLine) continue
      last = parseValue(token.text, () => setting.type.fromText(token.value)) ?? last
    }
    return last
  })
}

/** The `agent.*` keys that the agent knows. */
export const AGENT_WORDS: readonly string[] = [
  CONFIG_FILE_KEY,
  ...SETTING_KEYS.map((key) => SETTINGS[key].commandLine ?? '').filter(isForAgent),
]

/** The `agent.*` keys that the agent does not know, each once. */
export function unknownWords(commandLine: string): readonly string[] {
  const keys = tokensOf(commandLine).map(({ key }) => key)
  return [...new Set(keys.filter((key) => isForAgent(key) && !AGENT_WORDS.includes(key)))]
}

/** Bare flags that are written with a value, and are therefore ignored. */
export function flagsWithValue(commandLine: string): readonly string[] {
  const flags = SETTING_KEYS.map((key) => SETTINGS[key]).filter(({ type }) => type === bareFlag)
  const isFlag = ({ key, value }: Token) =>
    value !== undefined && flags.some(({ commandLine: word }) => word === key)
  return tokensOf(commandLine)
    .filter(isFlag)
    .map(({ text }) => text)
}

function isForAgent(key: string): boolean {
  return key.startsWith('agent.')
}

interface Token {
  readonly text: string
  readonly key: string
  /** The text after the first `=`; undefined for a bare word. */
  readonly value: string | undefined
}

function tokensOf(commandLine: string): readonly Token[] {
  return commandLine
    .split(/\s+/)
    .filter((text) => text !== '')
    .map((text) => {
      const equals = text.indexOf('=')
      if (equals === -1) return { text, key: text, value: undefined }
      return { text, key: text.slice(0, equals), value: text.slice(equals + 1) }
    })
}

/** Index of the first token that may set `setting`. */
function firstTokenFor(tokens: readonly Token[], setting: Setting<unknown>): number {
  if (setting.after === undefined) return 0
  const index = tokens.findIndex(({ key }) => key === setting.after)
  return index === -1 ? tokens.length : index
}
