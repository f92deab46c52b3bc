// Keeps the end of the conversation in sight while an answer grows, unless the person has scrolled up to read.
import { useLayoutEffect, useRef, useState } from 'preact/hooks';

const kNearPx = 80;

export function useStickToEnd(content: unknown, hidden: boolean) {
  const ref = useRef<HTMLDivElement>(null);
  const sticky = useRef(true);
  const [atEnd, setAtEnd] = useState(true);

  useLayoutEffect(() => {
    if (!hidden && sticky.current && ref.current) ref.current.scrollTop = ref.current.scrollHeight;
  }, [content, hidden]);

  return {
    ref,
    atEnd,
    onScroll: () => {
      const box = ref.current!;
      sticky.current = box.scrollHeight - box.scrollTop - box.clientHeight < kNearPx;
      setAtEnd(sticky.current);
    },
    toEnd: () => {
      sticky.current = true;
      setAtEnd(true);
      if (ref.current) ref.current.scrollTop = ref.current.scrollHeight;
    },
  };
}
