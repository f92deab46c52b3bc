// Reads the server once a second while the page is in sight, and keeps the last minutes.
import { useEffect, useState } from 'preact/hooks';
import { type Reading, read } from './readings';

const kEveryMs = 1000;
const kMost = 181; // three minutes

export interface Readings {
  list: Reading[]; // oldest first
  problem: string; // why the last reading failed; '' if it did not
}

export function useReadings(): Readings {
  const [readings, setReadings] = useState<Readings>({ list: [], problem: '' });
  useEffect(() => {
    let over = false;
    let timer = 0;
    const round = async () => {
      if (!document.hidden) {
        try {
          const reading = await read();
          setReadings(({ list }) => ({ list: [...list, reading].slice(-kMost), problem: '' }));
        } catch (error) {
          setReadings(({ list }) => ({ list, problem: error instanceof Error ? error.message : String(error) }));
        }
      }
      if (!over) timer = setTimeout(() => void round(), kEveryMs);
    };
    void round();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, []);
  return readings;
}
