import { AgentError, messageOf } from '../../base/errors.ts'
import {
  commandLineSettings,
  configFileOf,
  flagsWithValue,
  unknownWords,
} from '../../settings/command-line.ts'
import { parseValue, readSettings } from '../../settings/read-settings.ts'
import { type AgentConfig, SETTING_KEYS, SETTINGS } from '../../settings/settings.ts'
import type { AgentArguments } from './arguments.ts'

/** The sources of settings. */
export interface ConfigSources {
  readonly files: { readText(path: string): Promise<string> }
  readonly arguments: Pick<AgentArguments, 'configFile' | 'serverAddress'>
  readonly environment: Readonly<Record<string, string | undefined>>
}

/** The agent's configuration, and for the log what of its sources changes nothing. */
export interface LoadedConfig {
  readonly config: AgentConfig
  /** Settings as a host names them, and why they have no effect. */
  readonly withoutEffect: readonly { readonly settings: string; readonly because: string }[]
}

/**
 * Loads the agent's configuration. The environment overrides the file of `--config`, or else the kernel command line; a
 * file that `agent.config_file` names is the only source; `--server-addr` overrides all. Throws when a file cannot be
 * read, and INVALID_ARGUMENT naming the source when a value is malformed.
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

/** Names of the settings that were changed and have no effect. */
function settingsWithoutEffect(config: AgentConfig): readonly string[] {
  const defaults = defaultConfig()
  return SETTING_KEYS.filter(
    (key) => SETTINGS[key].hasNoEffect === true && config[key] !== defaults[key],
  ).map((key) => SETTINGS[key].commandLine ?? SETTINGS[key].toml ?? key)
}

/** The defaults of all settings. */
export function defaultConfig(): AgentConfig {
  // Every setting has a default, so none is missing.
  return readSettings((setting) => setting.default) as AgentConfig
}

async function configured({ files, environment, arguments: given }: ConfigSources): Promise<{
  readonly settings: Partial<AgentConfig>
  readonly unknown?: readonly string[]
  readonly withValue?: readonly string[]
}> {
  const fromFile = async (path: string) => configFileSettings(path, await files.readText(path))
  if (given.configFile !== undefined) {
    return { settings: { ...(await fromFile(given.configFile)), ...environmentSettings(environment) } }
  }
  const commandLine = await files.readText('/proc/cmdline')
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

/**
 * The settings in a TOML file; unknown keys are ignored. Throws INVALID_ARGUMENT naming `path`, key and value when the
 * file or a value is malformed.
 */
export async function configFileSettings(path: string, content: string): Promise<Partial<AgentConfig>> {
  const values = await parseToml(path, content)
  return readSettings((setting) => {
    if (setting.toml === undefined || !Object.hasOwn(values, setting.toml)) return undefined
    const value = values[setting.toml]
    const source = `${path}: ${setting.toml} = ${JSON.stringify(value, showable)}`
    return parseValue(source, () => setting.type.fromToml(value))
  })
}

/** JSON has no bigint, which an integer above 2^53-1 is. */
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

/**
 * The settings in environment variables. Throws INVALID_ARGUMENT naming variable and value when a value is malformed.
 */
function environmentSettings(
  environment: Readonly<Record<string, string | undefined>>,
): Partial<AgentConfig> {
  return readSettings((setting) => {
    const value = setting.environment === undefined ? undefined : environment[setting.environment]
    if (value === undefined) return undefined
    return parseValue(`${setting.environment}=${value}`, () => setting.type.fromText(value))
  })
}
