import { describe, expect, it } from 'vitest'
import { growthPage, growthPicture, isDrawn } from '../../bench/growth-page.ts'

const measured = 'abc, Linux 6.12, 2 CPUs, load 0.1'
const execs = {
  title: 'Processes',
  text: 'The time of each.',
  columns: ['processes', 'all, ms', 'bare, ms', 'memory, MiB'],
  rows: [
    [1, 10, 8.123, 30],
    [10, 100, 80, 31],
  ],
  measured,
}
const boot = { title: 'Boot', text: 'Phases.', columns: ['phase', 'ms'], rows: [['kernel', 1234]], measured }

describe('the page of growth', () => {
  it('has a table for each series, and a picture where a number grows', () => {
    const page = growthPage({ execs, boot })
    expect(page).toContain('## Processes\n\n![Processes](growth-execs.svg)\n\nThe time of each.\n')
    expect(page).toContain('| 1 | 10 | 8.12 | 30 |\n| 10 | 100 | 80 | 31 |\n')
    expect(page).toContain('## Boot\n\nPhases.\n\n| phase | ms |\n| --- | --- |\n| kernel | 1,234 |\n')
    expect([execs, boot].map(isDrawn)).toEqual([true, false])
  })

  it('draws the columns with the unit of the second one, in decades', () => {
    const picture = growthPicture(execs)
    const lines = [...picture.matchAll(/points="([^"]+)"/g)].map(([, points]) => points)
    // The picture has the decade from 1 to 10 across, and those from 1 to 100 upwards.
    expect(lines).toEqual(['48,160 592,48', expect.stringMatching(/^48,\d+(\.\d)? 592,\d+(\.\d)?$/)])
    expect(picture).not.toContain('memory')
    for (const decade of ['>1<', '>10<', '>100<']) expect(picture).toContain(decade)
  })
})
