import { parseValue, readSettings } from './read-settings.ts'
import type { AgentConfig } from './settings.ts'

/**
 * The settings that environment variables make (spec A.7). Throws INVALID_ARGUMENT naming variable and value when a
 * value is malformed.
 */
export function environmentSettings(
  environment: Readonly<Record<string, string | undefined>>,
): Partial<AgentConfig> {
  return readSettings((setting) => {
    const value = setting.environment === undefined ? undefined : environment[setting.environment]
    if (value === undefined) return undefined
    return parseValue(`${setting.environment}=${value}`, () => setting.type.fromText(value))
  })
}
