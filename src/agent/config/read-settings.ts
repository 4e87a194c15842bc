import { AgentError, messageOf } from '../../base/errors.ts'
import { type AgentConfig, SETTING_KEYS, SETTINGS, type Setting, type SettingKey } from './settings.ts'

/**
 * The settings that one source sets: `read` is asked for each and returns `undefined` where the source says nothing.
 */
export function readSettings(
  read: (setting: Setting<unknown>, key: SettingKey) => unknown,
): Partial<AgentConfig> {
  const values = SETTING_KEYS.map((key) => [key, read(SETTINGS[key], key)] as const)
  // Each value comes out of its own setting's type.
  return Object.fromEntries(values.filter(([, value]) => value !== undefined)) as Partial<AgentConfig>
}

/** What `parse` makes of a value; its complaint names the setting and the value, as the user wrote them. */
export function parseValue<T>(written: string, parse: () => T): T {
  try {
    return parse()
  } catch (error) {
    throw new AgentError('INVALID_ARGUMENT', `${written}: ${messageOf(error)}`, { cause: error })
  }
}
