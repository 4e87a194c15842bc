import type { Setting } from '../../src/settings/setting-types.ts'
import { SETTING_KEYS, SETTINGS, type SettingKey } from '../../src/settings/settings.ts'

const INTRODUCTION = `# Settings

Every setting of the agent. \`npm run gen\` makes this page from the table in \`src/settings/settings.ts\`;
[operate](../operate.md) says where the agent takes them from.`

const HEAD = `| kernel command line | TOML | environment | value | default | what it does |
|---|---|---|---|---|---|`

const SECTIONS: readonly { readonly title: string; readonly first: SettingKey; readonly text?: string }[] = [
  { title: 'The agent', first: 'serverAddress' },
  { title: 'Debugging', first: 'logPort' },
  { title: 'Devices, metadata and standard streams', first: 'hangTimeoutSecs' },
  { title: 'Control groups', first: 'unifiedCgroupHierarchy' },
  { title: 'Policy and images', first: 'policyFile' },
  {
    title: 'CDI devices',
    first: 'cdiTimeoutMs',
    text: 'The page about [devices](../devices.md#cdi) says how they are used.',
  },
  { title: 'Guest components and encrypted storage', first: 'cdhApiTimeoutMs' },
  {
    title: 'Memory reclaim',
    first: 'memAgentEnable',
    text: `[Memory that is given back](../operate.md#memory-that-is-given-back) says how they work together. MemAgentMemcgSet and
MemAgentCompactSet change them while the agent runs.`,
  },
]

export function settingsPage(): string {
  const starts = [...SECTIONS.map(({ first }) => SETTING_KEYS.indexOf(first)), SETTING_KEYS.length]
  const sections = SECTIONS.map(({ title, text }, index) => {
    const rows = SETTING_KEYS.slice(starts[index], starts[index + 1]).map((key) => rowOf(SETTINGS[key]))
    return [`## ${title}`, ...(text === undefined ? [] : [text]), [HEAD, ...rows].join('\n')].join('\n\n')
  })
  return `${[INTRODUCTION, ...sections].join('\n\n')}\n`
}

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
