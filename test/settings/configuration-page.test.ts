import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { Setting } from '../../src/settings/setting-types.ts'
import { SETTING_KEYS, SETTINGS } from '../../src/settings/settings.ts'

const PAGE = join(import.meta.dirname, '../../docs/configuration.md')

describe('docs/configuration.md', () => {
  it('shows the table of settings', () => {
    const [, section = ''] = readFileSync(PAGE, 'utf8').split(/^## Settings$|^## Arguments$/m)
    const table = section.split('\n').filter((line) => line.startsWith('| `') || line.startsWith('| –'))
    expect(table).toEqual(SETTING_KEYS.map((key) => rowOf(SETTINGS[key])))
  })
})

function rowOf(setting: Setting<unknown>): string {
  const shown = setting.type.show(setting.default)
  const cells = [
    nameCell(setting.commandLine),
    nameCell(setting.toml),
    nameCell(setting.environment),
    setting.type.name,
    shown === '' ? '–' : `\`${shown}\``,
    setting.hasNoEffect === true ? `${setting.doc} No effect yet.` : setting.doc,
  ]
  return `| ${cells.join(' | ')} |`
}

function nameCell(name: string | undefined): string {
  return name === undefined ? '–' : `\`${name}\``
}
