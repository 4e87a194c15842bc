import { AgentError, messageOf } from '../../base/errors.ts'
import { parseValue, readSettings } from './read-settings.ts'
import type { AgentConfig } from './settings.ts'

/**
 * The settings in a TOML file (spec A.6); keys we do not know are ignored. Throws INVALID_ARGUMENT naming `path`, and
 * the key and value that are malformed.
 */
export async function configFileSettings(path: string, content: string): Promise<Partial<AgentConfig>> {
  const values = await parseToml(path, content)
  return readSettings((setting) => {
    if (setting.toml === undefined || !Object.hasOwn(values, setting.toml)) return undefined
    const value = values[setting.toml]
    const written = `${path}: ${setting.toml} = ${JSON.stringify(value)}`
    return parseValue(written, () => setting.type.fromToml(value))
  })
}

async function parseToml(path: string, content: string): Promise<Readonly<Record<string, unknown>>> {
  // Most guests have no such file: the parser is loaded for those that do.
  const { parse } = await import('smol-toml')
  try {
    return parse(content)
  } catch (error) {
    throw new AgentError('INVALID_ARGUMENT', `${path}: ${messageOf(error)}`, { cause: error })
  }
}
