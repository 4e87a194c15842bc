import { AgentError, messageOf } from '../../base/errors.ts'
import type { Files, ScratchFiles } from '../../os/files/files.ts'
import {
  commandLineSettings,
  configFileOf,
  flagsWithValue,
  unknownWords,
} from '../../settings/command-line.ts'
import { parseValue, readSettings } from '../../settings/read-settings.ts'
import { type AgentConfig, SETTING_KEYS, SETTINGS } from '../../settings/settings.ts'
import type { AgentArguments } from './arguments.ts'

export interface ConfigSources {
  readonly files: Pick<Files, 'readText'>
  /** For the kernel's command line: the first trip to a thread makes all threads, which takes a millisecond. */
  readonly scratch: Pick<ScratchFiles, 'readText'>
  readonly arguments: Pick<AgentArguments, 'configFile' | 'serverAddress'>
  readonly environment: Readonly<Record<string, string | undefined>>
}

export interface LoadedConfig {
  readonly config: AgentConfig
  /** Settings as a host writes them, and the reason why they have no effect. */
  readonly withoutEffect: readonly { readonly settings: string; readonly because: string }[]
}

/**
 * The environment overrides the file of `--config`, or else the kernel command line. A file named by `agent.config_file`
 * is the only source. `--server-addr` overrides all. Throws INVALID_ARGUMENT for a malformed value.
 */
export async function loadConfig(sources: ConfigSources): Promise<LoadedConfig> {
  const { settings, unknown = [], withValue = [] } = await configured(sources)
  const config = { ...defaultConfig(), ...settings, ...argumentSettings(sources) }
  const withoutEffect = [
    { settings: settingsWithoutEffect(config).join(', '), because: 'not supported' },
    { settings: unknown.join(', '), because: 'unknown' },
    { settings: withValue.join(', '), because: 'want the word without a value' },
  ]
  return { config, withoutEffect: withoutEffect.filter(({ settings }) => settings !== '') }
}

function settingsWithoutEffect(config: AgentConfig): readonly string[] {
  const defaults = defaultConfig()
  return SETTING_KEYS.filter(
    (key) => SETTINGS[key].hasNoEffect === true && config[key] !== defaults[key],
  ).map((key) => SETTINGS[key].commandLine ?? SETTINGS[key].toml ?? key)
}

export function defaultConfig(): AgentConfig {
  // Every setting has a default, so none is missing.
  return readSettings((setting) => setting.default) as AgentConfig
}

async function configured({ files, scratch, environment, arguments: given }: ConfigSources): Promise<{
  readonly settings: Partial<AgentConfig>
  readonly unknown?: readonly string[]
  readonly withValue?: readonly string[]
}> {
  const fromFile = async (path: string) => configFileSettings(path, await files.readText(path))
  if (given.configFile !== undefined) {
    return { settings: { ...(await fromFile(given.configFile)), ...environmentSettings(environment) } }
  }
  const commandLine = await scratch.readText('/proc/cmdline')
  const file = configFileOf(commandLine)
  if (file !== undefined) return { settings: await fromFile(file) }
  const settings = { ...commandLineSettings(commandLine), ...environmentSettings(environment) }
  return { settings, unknown: unknownWords(commandLine), withValue: flagsWithValue(commandLine) }
}

function argumentSettings({ arguments: given }: ConfigSources): Partial<AgentConfig> {
  const address = given.serverAddress
  if (address === undefined) return {}
  const read = parseValue(`--server-addr ${address}`, () => SETTINGS.serverAddress.type.fromText(address))
  return read === undefined ? {} : { serverAddress: read }
}

/** Ignores unknown keys. Throws INVALID_ARGUMENT with `path`, key and value for a malformed file or value. */
export async function configFileSettings(path: string, content: string): Promise<Partial<AgentConfig>> {
  const values = await parseToml(path, content)
  return readSettings((setting) => {
    if (setting.toml === undefined || !Object.hasOwn(values, setting.toml)) return undefined
    const value = values[setting.toml]
    const source = `${path}: ${setting.toml} = ${JSON.stringify(value, showable)}`
    return parseValue(source, () => setting.type.fromToml(value))
  })
}

/** JSON has no bigint, the type of an integer above 2^53-1. */
function showable(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? String(value) : value
}

async function parseToml(path: string, content: string): Promise<Readonly<Record<string, unknown>>> {
  // Loaded only when there is a file, which most guests lack.
  const { parse } = await import('smol-toml')
  try {
    return parse(content, { integersAsBigInt: 'asNeeded' })
  } catch (error) {
    throw new AgentError('INVALID_ARGUMENT', `${path}: ${messageOf(error)}`, { cause: error })
  }
}

/** Throws INVALID_ARGUMENT with the variable and its malformed value. */
function environmentSettings(
  environment: Readonly<Record<string, string | undefined>>,
): Partial<AgentConfig> {
  return readSettings((setting) => {
    const value = setting.environment === undefined ? undefined : environment[setting.environment]
    if (value === undefined) return undefined
    return parseValue(`${setting.environment}=${value}`, () => setting.type.fromText(value))
  })
}
