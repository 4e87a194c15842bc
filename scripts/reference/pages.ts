import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { growthPage, growthPicture, isDrawn, readGrowth } from '../../bench/growth-page.ts'
import { keptPage, readKept } from '../../bench/kept.ts'
import { projectRoot } from '../../src/build/project.ts'
import { advisoriesTable } from './advisories.ts'
import { agentCtlPage } from './agent-ctl.ts'
import { callersWordsTable } from './callers-words.ts'
import { featuresPage, schemaPage } from './features.ts'
import { limitsPage } from './limits.ts'
import { metricsPage } from './metrics.ts'
import { recoveryTable } from './recovery.ts'
import { rpcsPage } from './rpcs.ts'
import { settingsPage } from './settings.ts'
import { boundsTable, waitsPage } from './waits.ts'

/** The pages made from the code. A function receives the present page, because a part of it may be kept. */
export const GENERATED_PAGES: Readonly<Record<string, (page: string) => string | Promise<string>>> = {
  'reference/agent-ctl.md': agentCtlPage,
  'reference/callers-words.md': withTable('| word |', callersWordsTable),
  'reference/features.md': featuresPage,
  'reference/growth.md': () => growthPage(readGrowth()),
  ...growthPictures(),
  'reference/limits.md': limitsPage,
  'reference/machine.schema.json': schemaPage,
  'reference/metrics.md': metricsPage,
  'reference/performance.md': () => keptPage(readKept()),
  'reference/recovery.md': withTable('| What |', recoveryTable),
  'reference/rpcs.md': rpcsPage,
  'reference/settings.md': settingsPage,
  'reference/waits.md': (page) => withTable('| setting |', boundsTable)(waitsPage(page)),
  'security.md': withTable('| advisory |', advisoriesTable),
}

function growthPictures(): Readonly<Record<string, () => string>> {
  const drawn = Object.entries(readGrowth()).filter(([, series]) => isDrawn(series))
  return Object.fromEntries(
    drawn.map(([name, series]) => [`reference/growth-${name}.svg`, () => growthPicture(series)]),
  )
}

export function pathOfPage(name: string): string {
  return join(projectRoot, 'docs', name)
}

export async function writePages(): Promise<void> {
  for (const [name, make] of Object.entries(GENERATED_PAGES)) {
    const path = pathOfPage(name)
    writeFileSync(path, await make(existsSync(path) ? readFileSync(path, 'utf8') : ''))
  }
}

/** Replaces the table that begins with `start`. Throws when the page has none. */
function withTable(start: string, table: () => string): (page: string) => string {
  return (page) => {
    const begin = page.indexOf(`\n\n${start}`)
    if (begin < 0) throw new Error(`the page has no table that begins with "${start}"`)
    const end = page.indexOf('\n\n', begin + 2)
    return `${page.slice(0, begin + 2)}${table()}${end < 0 ? '\n' : page.slice(end)}`
  }
}
