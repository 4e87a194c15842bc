import { AgentError, messageOf } from '../base/errors.ts'
import type { Setting } from './setting-types.ts'
import { type AgentConfig, SETTING_KEYS, SETTINGS, type SettingKey } from './settings.ts'

/** `read` is called for each setting and returns undefined when the source does not set it. */
export function readSettings(
  read: (setting: Setting<unknown>, key: SettingKey) => unknown,
): Partial<AgentConfig> {
  const values = SETTING_KEYS.map((key) => [key, read(SETTINGS[key], key)] as const)
  // Each value has the type of its own setting.
  return Object.fromEntries(values.filter(([, value]) => value !== undefined)) as Partial<AgentConfig>
}

/** Returns the result of `parse`. Throws INVALID_ARGUMENT `<source>: <reason>`; `source` is the setting as written. */
export function parseValue<T>(source: string, parse: () => T): T {
  try {
    return parse()
  } catch (error) {
    throw new AgentError('INVALID_ARGUMENT', `${source}: ${messageOf(error)}`, { cause: error })
  }
}
